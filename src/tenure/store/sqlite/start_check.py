"""A quick check of a SQLite file before a server uses it.

``quick_check`` reads every page and finds broken trees, not changed contents: these have
checksums of their own. It takes 0.6 s of CPU per GiB and reads the whole file, so it has a time
limit; `tenure db check` has none.
"""

from __future__ import annotations

import re
import time
from typing import Final

import apsw
import structlog

from tenure.core.limits import SQLITE_CHECK_MS_MAX
from tenure.store.failure import StoreDamagedError

log = structlog.get_logger("tenure.store")
# About a millisecond of work in SQLite's virtual machine.
_STEPS_BETWEEN_LOOKS: Final = 20_000
# Problems with the values of single rows, which do not affect the others.
_OF_ROWS: Final = re.compile(r"(value|constraint failed) in ")


def check_file(connection: apsw.Connection) -> None:
    """Refuse a file with a broken structure: every write would damage more of it."""
    deadline = time.monotonic() + SQLITE_CHECK_MS_MAX / 1000
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_LOOKS)
    try:
        found = [str(row[0]) for row in connection.execute("PRAGMA quick_check")]
    except apsw.InterruptError:
        log.info("store.check_unfinished", limit_ms=SQLITE_CHECK_MS_MAX)
        return
    except (apsw.CorruptError, UnicodeDecodeError) as error:
        found = [str(error)]
    finally:
        connection.set_progress_handler(None)
    problems = [each for each in found if each != "ok"]
    if not problems:
        return
    log.error("store.damaged", problems=problems[:10], problem_count=len(problems))
    broken = [each for each in problems if not _OF_ROWS.search(each)]
    if broken:
        message = (
            f"The SQLite file is damaged: {broken[0]}. Keep a copy of it as it is, run "
            "tenure db check, then restore a backup."
        )
        raise StoreDamagedError(message)
