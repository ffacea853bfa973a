"""The HTTP edge, over real sockets and on both stores."""
