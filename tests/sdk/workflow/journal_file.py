"""Journals in a file, for another interpreter: ``python -m tests.sdk.workflow.journal_file FILE``.

It re-runs each of them, goes on from its first half, and prints what was wrong.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from tenure.sdk.workflow.journal import Entry, Kind
from tenure.v1 import task_pb2
from tests.sdk.workflow.model import Model, Stuck
from tests.sdk.workflow.play import check_again, go_on, outcome


class Played(msgspec.Struct):
    """A program that came to its end."""

    seed: int
    outcome: Any
    entries: list[dict[str, Any]]


def write(path: Path, models: Iterable[tuple[int, Model]]) -> None:
    """Keep the journals of programs that were played."""
    played = [
        Played(seed, outcome(model.ending), [_kept(each) for each in model.journal])
        for seed, model in models
    ]
    path.write_bytes(msgspec.json.encode(played))


def _kept(entry: Entry) -> dict[str, Any]:
    kept = {name: getattr(entry, name) for name in entry.__struct_fields__}
    if entry.error is not None:
        kept["error"] = entry.error.SerializeToString()
    return kept


def _entry(kept: dict[str, Any]) -> Entry:
    wire = msgspec.convert(kept | {"error": None}, Entry)
    wire.kind = Kind(kept["kind"])
    if kept["error"] is not None:
        data = msgspec.convert(kept["error"], bytes)
        wire.error = task_pb2.TaskError.FromString(data)
    return wire


def check(path: Path) -> list[str]:
    """Return what is wrong with the journals here."""
    complaints = []
    for each in msgspec.json.decode(path.read_bytes(), type=list[Played]):
        journal = [_entry(kept) for kept in each.entries]
        try:
            check_again(each.seed, journal, each.outcome)
            go_on(each.seed, journal[: len(journal) // 2])
        except (AssertionError, Stuck) as error:
            complaints.append(f"program {each.seed}: {error!r}")
    return complaints


if __name__ == "__main__":
    found = check(Path(sys.argv[1]))
    said = {"version": platform.python_version(), "complaints": found}
    print(json.dumps(said))  # noqa: T201 (for whoever started it)
