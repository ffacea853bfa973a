"""Why a task is not running now: facts in, ordered reasons out."""
