"""TLS of the server, with real certificates, files and sockets."""
