"""The public test kit: a server inside a test with a manual clock, faults, and activities alone.

``open_engine`` and ``open_sync_engine`` start a real server in this process; ``run_activity`` and
``ActivityEnvironment`` run one activity without any. ``assert_survives`` kills the worker of a
workflow at every point, ``JournalChecker`` runs new code against exported journals. The pytest
plugin has them as fixtures.

Rule: only the test moves the clock of a server. No other layer imports this package.

State: an engine or a clock belongs to the test that made it. None is shared or global.

Failure: waiting for something that can never happen is an error, not a hang.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenure.sdk.activity.context import CompletesLater
    from tenure.testing.activity import ActivityEnvironment, Progress, run_activity
    from tenure.testing.engine import TestEngine, open_engine
    from tenure.testing.journals import JournalChecker
    from tenure.testing.survival import assert_survives
    from tenure.testing.sync_engine import SyncTestEngine, open_sync_engine

_HOME = {
    "ActivityEnvironment": "tenure.testing.activity",
    "CompletesLater": "tenure.sdk.activity.context",
    "JournalChecker": "tenure.testing.journals",
    "Progress": "tenure.testing.activity",
    "SyncTestEngine": "tenure.testing.sync_engine",
    "TestEngine": "tenure.testing.engine",
    "assert_survives": "tenure.testing.survival",
    "open_engine": "tenure.testing.engine",
    "open_sync_engine": "tenure.testing.sync_engine",
    "run_activity": "tenure.testing.activity",
}

__all__ = [
    "ActivityEnvironment",
    "CompletesLater",
    "JournalChecker",
    "Progress",
    "SyncTestEngine",
    "TestEngine",
    "assert_survives",
    "open_engine",
    "open_sync_engine",
    "run_activity",
]


def __getattr__(name: str) -> object:
    """Load a public name with its first use: running one activity needs no server."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'tenure.testing' has no attribute {name!r}")
    return getattr(import_module(home), name)
