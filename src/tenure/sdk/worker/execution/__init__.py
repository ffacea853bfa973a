"""The execution of attempts: in the user's loop, in threads and in child processes."""
