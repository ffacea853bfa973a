"""The operations on endpoints: where tasks are pushed to."""
