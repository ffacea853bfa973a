"""Journals in a file, for another interpreter: ``python -m tests.sdk.workflow.journal_file FILE``.

It re-runs each of them, goes on from its first half, and prints what was wrong.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec
from google.protobuf.message import Message

from tenure.sdk.workflow.journal import Entry, Kind
from tenure.v1 import task_pb2
from tests.sdk.workflow.model import Model, Stuck
from tests.sdk.workflow.play import Recording, check_again, go_on, recorded

_MESSAGES: Final[dict[str, type[Message]]] = {
    "error": task_pb2.TaskError,
    "child": task_pb2.ChildEnd,
    "group": task_pb2.GroupEnd,
}


class Played(msgspec.Struct):
    """A program that came to its end."""

    seed: int
    outcome: Any
    arguments: dict[str, Any]
    generation: int
    entries: list[dict[str, Any]]
    results: dict[str, list[dict[str, Any]]]
    left_open: list[str]


def write(path: Path, models: Iterable[tuple[int, Model]]) -> None:
    """Keep the journals of programs that were played."""
    path.write_bytes(msgspec.json.encode([_played(seed, recorded(each)) for seed, each in models]))


def _played(seed: int, first: Recording) -> Played:
    entries = [_kept(each) for each in first.journal]
    results = {key: [_kept(each) for each in ends] for key, ends in first.results.items()}
    return Played(
        seed, first.outcome, first.arguments, first.generation, entries, results, first.left_open
    )


def _kept(entry: Entry) -> dict[str, Any]:
    kept = {name: getattr(entry, name) for name in entry.__struct_fields__}
    for name in _MESSAGES:
        if kept[name] is not None:
            kept[name] = kept[name].SerializeToString()
    return kept


def _entry(kept: dict[str, Any]) -> Entry:
    wire = msgspec.convert(kept | dict.fromkeys(_MESSAGES), Entry)
    wire.kind = Kind(kept["kind"])
    for name, kind in _MESSAGES.items():
        if kept[name] is not None:
            setattr(wire, name, kind.FromString(msgspec.convert(kept[name], bytes)))
    return wire


def check(path: Path) -> list[str]:
    """Return what is wrong with the journals here."""
    complaints = []
    for each in msgspec.json.decode(path.read_bytes(), type=list[Played]):
        journal = [_entry(kept) for kept in each.entries]
        results = {key: [_entry(kept) for kept in ends] for key, ends in each.results.items()}
        first = Recording(
            each.outcome, each.arguments, each.generation, journal, results, each.left_open
        )
        try:
            check_again(each.seed, first)
            go_on(each.seed, first)
        except (AssertionError, Stuck) as error:
            complaints.append(f"program {each.seed}: {error!r}")
    return complaints


if __name__ == "__main__":
    found = check(Path(sys.argv[1]))
    said = {"version": platform.python_version(), "complaints": found}
    print(json.dumps(said))  # noqa: T201 (for whoever started it)
