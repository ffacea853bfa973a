"""Keys, namespaces and secrets: their commands, and what this server remembers of them."""
