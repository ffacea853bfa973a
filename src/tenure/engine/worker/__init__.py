"""The commands for workers, the heartbeat lane, and the detection of lost sessions."""
