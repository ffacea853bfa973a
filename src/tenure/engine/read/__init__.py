"""The reads: they change nothing, are bounded, and use connections of their own."""
