"""The reads: they change nothing, are bounded, and use separate connections."""
