"""What can be asked about tasks: each command becomes events that the core decides."""
