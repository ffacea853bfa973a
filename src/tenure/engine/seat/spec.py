"""The specs of the commands for seats."""

from __future__ import annotations

from typing import Final

from tenure.engine.command_spec import CommandSpec
from tenure.engine.seat import check, handler, needs
from tenure.engine.seat import command as c

SEAT_SPECS: Final = (
    CommandSpec(c.TakeSeat, check.take_seat, needs.take_seat, handler.take_seat),
    CommandSpec(c.ApplySet, check.apply_set, needs.apply_set, handler.apply_set),
)
