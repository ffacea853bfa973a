"""What can be asked about workers, the heartbeat lane, and what is noticed of sessions that end."""
