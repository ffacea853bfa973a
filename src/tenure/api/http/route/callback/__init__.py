"""The worker contract over HTTP: what the process behind an endpoint says about its attempt."""
