"""Input that nobody would send on purpose, over both edges and into every decoder."""
