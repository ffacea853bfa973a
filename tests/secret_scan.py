"""What must be in nobody's log: secrets that can be told by their form alone.

Each API key of each test is one, and so is the canary that tests send where payloads go. The hooks
in ``tests/conftest.py`` look for them in all that a test has logged or printed; whoever starts
server processes looks through their logs at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

CANARY: Final = "canary-7f3a9c"
_SECRETS: Final = re.compile(rf"tnr_[a-z2-7]{{16}}_[A-Za-z0-9_-]{{43}}|{CANARY}")


def leaks(texts: Iterable[str]) -> list[str]:
    """Return the lines that hold a secret, cut so that they say where it came from."""
    return [
        line[:300]
        for text in texts
        if _SECRETS.search(text)
        for line in text.splitlines()
        if _SECRETS.search(line)
    ]


def check_logs(logs: Iterable[Path]) -> None:
    """Fail if the log of a process holds a secret."""
    found = leaks(log.read_text(errors="replace") for log in logs if log.exists())
    assert not found, "\n".join(["A process has logged a secret:", *found])
