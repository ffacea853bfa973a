"""Commands about runs: each is checked, says what it needs, becomes events and is answered."""
