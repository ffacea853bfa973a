"""Counts what was found: how many runs of which shapes fit, and how others do not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from tenure.sdk.journal_check.finding import Finding, Verdict

# What is behind them is counted and not told apart.
_GROUPS_MAX: Final = 1_000
_WARNINGS_MAX: Final = 200
# Runs of more shapes are re-run one by one.
_SHAPES_MAX: Final = 100_000
_WORST_FIRST: Final = (
    Verdict.PARKS,
    Verdict.RAISES,
    Verdict.RESTLESS,
    Verdict.NO_TYPE,
    Verdict.SAFE,
)


class FoundGroup(msgspec.Struct, rename="camel", omit_defaults=True):
    """Runs of one type of which the same was found; ``example`` is one of them."""

    type: str
    verdict: Verdict
    runs: int
    shapes: int
    example: str
    message: str = ""
    position: int = 0


class Warned(msgspec.Struct, rename="camel"):
    """Something about runs of a type that does not stop them."""

    type: str
    message: str
    example: str


class Report(msgspec.Struct, rename="camel", frozen=True):
    """All that a check has found; the worst first."""

    runs: int
    shapes: int
    would_park: int
    groups: list[FoundGroup]
    warnings: list[Warned]

    @property
    def is_broken(self) -> bool:
        """Whether a run would not go on as it should."""
        return any(each.verdict.is_broken for each in self.groups)


class Summary:
    """Takes findings shape by shape, and the runs of each shape."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._groups: dict[tuple[str, Verdict, str], FoundGroup] = {}
        self._of_shape: dict[bytes, FoundGroup] = {}
        self._shapes = 0
        self._warnings: dict[tuple[str, str], Warned] = {}
        # By type and patch: whether any run needs the code from before it.
        self._patches: dict[tuple[str, str], tuple[bool, str]] = {}

    @property
    def runs(self) -> int:
        """How many runs were counted."""
        return sum(each.runs for each in self._groups.values())

    @property
    def broken_runs(self) -> int:
        """How many of them would not go on as they should."""
        return sum(each.runs for each in self._groups.values() if each.verdict.is_broken)

    def count(self, shape: bytes) -> bool:
        """Count one more run of a shape that was re-run; False if it has to be."""
        group = self._of_shape.get(shape)
        if group is not None:
            group.runs += 1
        return group is not None

    def add(self, shape: bytes, type: str, run_id: str, finding: Finding) -> None:
        """Take what was found of the first run of a shape, or of a run alone."""
        key = (type, finding.verdict, finding.message)
        if key not in self._groups and len(self._groups) >= _GROUPS_MAX:
            key = (type, finding.verdict, "for other reasons")
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = FoundGroup(
                type, finding.verdict, 0, 0, run_id, key[2], finding.position
            )
        group.runs += 1
        if shape not in self._of_shape:
            group.shapes += 1
            self._shapes += 1
            if len(self._of_shape) < _SHAPES_MAX:
                self._of_shape[shape] = group
        for message in finding.warnings:
            if len(self._warnings) < _WARNINGS_MAX:
                self._warnings.setdefault((type, message), Warned(type, message, run_id))
        for patch, has_it in finding.patches:
            is_needed, _ = self._patches.get((type, patch), (False, run_id))
            self._patches[type, patch] = (is_needed or not has_it, run_id)

    def report(self, *, is_whole: bool) -> Report:
        """Return all of it; ``is_whole`` says that no live run was left out."""
        groups = sorted(
            self._groups.values(),
            key=lambda each: (_WORST_FIRST.index(each.verdict), each.type, -each.runs),
        )
        warnings = [*self._warnings.values(), *(self._unneeded() if is_whole else ())]
        parked = sum(each.runs for each in groups if each.verdict is Verdict.PARKS)
        return Report(self.runs, self._shapes, parked, groups, warnings)

    def _unneeded(self) -> Iterable[Warned]:
        broken = {each.type for each in self._groups.values() if each.verdict.is_broken}
        for (type, patch), (is_needed, run_id) in self._patches.items():
            if not is_needed and type not in broken:
                message = f"no run needs the code from before the patch {patch}: delete it"
                yield Warned(type, message, run_id)
