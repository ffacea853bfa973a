"""``tenure dev``: a server and a worker in one command, with reload."""
