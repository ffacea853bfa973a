"""Runs in a worker: steps, retries, slots, drain, lost attempts and new sessions."""
