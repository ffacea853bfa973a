"""Why a task is not running now: from facts to ordered reasons."""
