"""What a re-run has found, in words."""

from __future__ import annotations

import enum

import msgspec


class Verdict(enum.StrEnum):
    """How a run fits the code."""

    SAFE = "safe"
    PARKS = "would park"
    RAISES = "raises"
    RESTLESS = "does not come to rest"
    NO_TYPE = "no such type"

    @property
    def is_broken(self) -> bool:
        """Whether a run would not go on as it should."""
        return self in (Verdict.PARKS, Verdict.RAISES, Verdict.RESTLESS)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """How one run fits: ``message`` says what was recorded, what is called, and the line.

    ``patches`` are those that its body asked for, with the answer that each got.
    """

    verdict: Verdict
    message: str = ""
    position: int = 0
    warnings: tuple[str, ...] = ()
    patches: tuple[tuple[str, bool], ...] = ()

    def __str__(self) -> str:
        return f"{self.verdict}: {self.message}" if self.message else str(self.verdict)


def no_such_type(type: str) -> Finding:
    """Say that the code has no workflow for a run."""
    return Finding(verdict=Verdict.NO_TYPE, message=f"the code has no workflow {type}")
