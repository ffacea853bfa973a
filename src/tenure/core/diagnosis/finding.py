"""Findings: a result of one check of a deployment, and what to do about it."""

from __future__ import annotations

import enum

import msgspec


class Level(enum.StrEnum):
    """How serious it is. A warning works now, but may become a problem."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Finding(msgspec.Struct, frozen=True):
    """One line of a diagnosis; ``check`` is stable, the message is for people."""

    check: str
    level: Level
    message: str
    advice: str = ""
    evidence: dict[str, str] = {}


def ok(check: str, message: str, **evidence: str) -> Finding:
    """Return a finding that nothing is wrong."""
    return Finding(check, Level.OK, message, "", evidence)
