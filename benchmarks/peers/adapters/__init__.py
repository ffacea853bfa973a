"""One module per candidate; each is loaded only in the environment that has its package."""
