"""The specs of callbacks."""

from __future__ import annotations

from typing import Final

from tenure.engine.callback import check, handler, needs
from tenure.engine.callback import command as c
from tenure.engine.command_spec import CommandSpec


def _end_bytes(command: c.CompleteCallback) -> int:
    said = command.item.said
    partial = b"" if said is None else said.output or b""
    return len(command.item.output or b"") + len(partial)


# A tuple without a type of its own: mypy compares each function with its kind of command.
CALLBACK_SPECS: Final = (
    CommandSpec(c.StartCallback, check.start_callback, needs.report, handler.start_callback),
    CommandSpec(
        c.BeatCallback,
        check.beat_callback,
        needs.report,
        handler.beat_callback,
        payload_bytes=lambda command: len(command.item.details or b""),
    ),
    CommandSpec(
        c.CompleteCallback,
        check.complete_callback,
        needs.complete,
        handler.complete_callback,
        payload_bytes=_end_bytes,
        is_awaited=True,
    ),
)
