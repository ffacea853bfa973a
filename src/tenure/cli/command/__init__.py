"""The commands, one file per word of the command line."""
