"""Keys, namespaces and secrets: their commands, and the cache of this server."""
