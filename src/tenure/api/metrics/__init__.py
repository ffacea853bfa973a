"""The metrics of a server: plain numbers, counted as things happen, written when requested."""
