"""Where another thread is.

Its stack is written down in one step by C. Walking the frames of a running thread crashed Python
3.11: it goes on between two steps, and the next frame may be gone.
"""

from __future__ import annotations

import faulthandler
import re
import tempfile


def stack_of(thread_id: int) -> list[str] | None:
    """Return a line for each call that a thread is in, the innermost first.

    None if it is gone, or not among the hundred that were started last: no more are written down.
    """
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        text = file.read().decode(errors="replace")
    found = re.search(rf"[Tt]hread 0x0*{thread_id:x}\b.*\n((?:  File .*\n)*)", text)
    return found[1].splitlines() if found else None
