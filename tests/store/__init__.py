"""One suite for both databases, and what each of them needs besides."""
