"""What every request needs: serving, reading, refusing and answering."""
