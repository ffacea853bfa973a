"""How long things may take at most on a machine that is busy with other work, in seconds.

They are no promises: what a user is promised stands with the test of that promise. Reaching one of
these means that something hangs, so they are wide, and a test that passes never waits for them.
"""

from __future__ import annotations

from typing import Final

# One answer or frame of a process that runs: less than the 30 s after which callers give up.
ANSWER_S: Final = 20.0
# Something comes within the running processes: a state, a lock, a line in a log.
WAIT_S: Final = 30.0
# A program is up: it imports, opens its store, and says that it is ready.
START_S: Final = 60.0
# A program has ended after it was told to.
STOP_S: Final = 30.0
# A command that does one thing and ends: of PostgreSQL, of the command line, of an example.
COMMAND_S: Final = 60.0
# A package is built, or installed with all that it needs.
INSTALL_S: Final = 300.0
# The tasks of a scene are finished.
WORK_S: Final = 60.0
# The tasks of a scene are finished that come in great numbers or while servers are killed.
LONG_WORK_S: Final = 120.0
