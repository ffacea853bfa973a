"""Entries of a journal as single lines, while a run is followed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import click
import msgspec

from tenure.cli.show.run_table import end_texts, entry_note, group_text, note
from tenure.cli.show.run_view import ShownEntry, ShownRun
from tenure.cli.show.text import cut, duration_text, one_line, parse_instant_ms

HEADER: Final = ("TIME", "POS", "CALL", "KIND", "TOOK", "NOTE")
_WIDTHS: Final = (8, 5, 24, 6, 8, 12)
_GAP: Final = "  "
# Of others there is nothing to say: they go on, or a worker has to come.
_TOLD: Final = frozenset(
    {"SLEEPING", "WAITING", "PARKED", "PAUSED", "CANCELLING", "COMPLETED", "FAILED", "CANCELLED"}
)
_DOING_MAX: Final = 3
_TIMED: Final = frozenset({"STEP", "CHILD"})


class FollowedEntry(ShownEntry, frozen=True, kw_only=True):
    """An entry with the generation of its run: a run that begins anew has a new journal."""

    generation: int

    @classmethod
    def of(cls, entry: ShownEntry, generation: int) -> FollowedEntry:
        """Put both together."""
        return cls(**msgspec.structs.asdict(entry), generation=generation)


def cells(entry: ShownEntry) -> tuple[str, ...]:
    """Return what the columns show of an entry."""
    took = duration_text(entry.took_ms or 0) if entry.kind in _TIMED else ""
    return (clock_text(entry.at), str(entry.pos), entry.key, entry.kind, took, entry_note(entry))


def clock_text(instant: str) -> str:
    """Return the time of day, as the reader's clock shows it."""
    at = datetime.fromtimestamp(parse_instant_ms(instant) / 1_000, UTC)
    return at.astimezone().strftime("%H:%M:%S")


def line(given: Sequence[str], terminal: int | None = None) -> str:
    """Return one line; of what has no room on a terminal the end is cut."""
    padded = [one_line(each).ljust(width) for each, width in zip(given, _WIDTHS, strict=True)]
    text = _GAP.join(padded).rstrip()
    return text if terminal is None else cut(text, terminal)


def styled(text: str, entry: ShownEntry) -> str:
    """Return a line with the colour of what has failed."""
    return click.style(text, fg="red") if entry.error is not None else text


def standing(run: ShownRun, now_ms: int) -> str:
    """Return how a run stands, if it waits or has ended."""
    if run.status not in _TOLD:
        return ""
    why = run.wakes_at if run.status == "SLEEPING" else note(run, now_ms)
    until = "until " if run.status == "SLEEPING" and why else ""
    return f"The run is {run.status}{f': {until}{why}' if why else ''}"


def doing(run: ShownRun) -> str:
    """Return what a run is at: the maps that go on and what it waits for, on one line."""
    maps = [group_text(each) for each in run.groups or ()]
    waits = [f"{each.kind} {each.key}" for each in run.waits or () if each.kind != "group"]
    return ", ".join([*maps, *waits][:_DOING_MAX])


def step_text(entry: ShownEntry) -> str:
    """Return what a run has done, in a few words; nothing of what says no more than before."""
    match entry.kind:
        case "STEP" | "CHILD":
            return _end_text(entry)
        case "GROUP":
            return f"{entry.key}: {', '.join(end_texts(entry))}"
        case "RETRY":
            return f"{entry.key} is tried again: {entry_note(entry)}"
        case "TIMER":
            return f"{entry.key} is over"
        case "SIGNAL":
            return f"signal {entry.key} came"
        case "CANCEL":
            return ", ".join(["a cancel was requested", *end_texts(entry)])
        case "NOTE":
            return entry_note(entry)
        case _:
            return ""


def _end_text(entry: ShownEntry) -> str:
    tries = f", {entry.attempts} attempts" if (entry.attempts or 0) > 1 else ""
    took = f" after {duration_text(entry.took_ms or 0)}{tries}"
    if entry.error is None:
        return f"{entry.key} done{took}"
    return f"{entry.key} failed{took}: {', '.join(end_texts(entry))}"
