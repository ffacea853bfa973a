"""How a worker is connected: one stream with frames both ways, or long polls."""
