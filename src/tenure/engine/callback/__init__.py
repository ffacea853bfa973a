"""Callbacks: what the process behind an endpoint reports about its attempt.

They are the reports of any worker, for which a task token vouches: the rules are those of the core.
A wrong token is refused here as well, when it names a task or a run that does not belong together.
"""
