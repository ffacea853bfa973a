"""What commands do to a database itself, without a server."""
