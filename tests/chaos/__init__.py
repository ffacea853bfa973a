"""Real processes, real signals, real databases, and a checker that trusts only what was logged."""
