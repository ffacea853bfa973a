"""Commands about schedules, and the one that fires them."""
