"""What belongs to every request: serving, reading, refusing and answering it."""
