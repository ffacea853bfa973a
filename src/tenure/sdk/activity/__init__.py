"""Activities as users declare them, and what the code inside of one can ask."""
