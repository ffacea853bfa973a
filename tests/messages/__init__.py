"""The mistakes of new users, each made for real, and the message that each gives.

``python -m tests.messages`` writes them to docs/reference/messages.md.
"""
