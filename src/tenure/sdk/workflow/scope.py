"""The keys of calls: branch, name and ordinal, counted where the call is made."""

from __future__ import annotations

import random
from contextvars import ContextVar
from typing import Final

import msgspec

from tenure.core import check

BRANCH_NAME_LENGTH_MAX: Final = 128
KEY_LENGTH_MAX: Final = 512


class CallKey(msgspec.Struct, frozen=True):
    """Which call of a body it is: its key, the branch it was made in, and its number there."""

    key: str
    path: str
    index: int


class Scope:
    """One branch of a body: the body itself, a task that it started, or a named branch."""

    __slots__ = ("_branches", "_child_count", "_names", "_timeouts", "call_count", "path", "seed")

    def __init__(self, path: str, seed: str) -> None:
        """Begin a branch; ``seed`` makes its random numbers the same on each re-run."""
        self.path = path
        self.seed = seed
        self.call_count = 0
        self._child_count = 0
        self._names: dict[str, int] = {}
        self._timeouts: dict[int, int] = {}
        self._branches: set[str] = set()

    def next_call(self, name: str) -> CallKey:
        """Return the key of the next call with this name."""
        index = self.call_count
        self.call_count = index + 1
        return CallKey(self._key(name), self.path, index)

    def next_note(self, name: str) -> str:
        """Return the key of something that is recorded but is not a call."""
        return self._key(name)

    def next_timeout(self) -> str:
        """Return the key of a timeout. It is not a call, so code in a timeout keeps its keys."""
        index = self.call_count
        count = self._timeouts.get(index, 0) + 1
        self._timeouts[index] = count
        return f"{self.path}timeout@{index}.{count}"

    def child(self) -> Scope:
        """Return the branch of the next task that is started here."""
        self._child_count += 1
        return self._below(str(self._child_count))

    def branch(self, name: str) -> Scope:
        """Return a branch with a name; raise ``ValueError`` if the name is bad or used twice."""
        check.name(name, "branch")
        if name.isdigit() or len(name) > BRANCH_NAME_LENGTH_MAX:
            message = f"a branch needs a name of up to {BRANCH_NAME_LENGTH_MAX} characters with a "
            raise ValueError(f"{message}letter in it, not {name[:BRANCH_NAME_LENGTH_MAX]!r}")
        if name in self._branches:
            raise ValueError(f"there is a branch {name!r} already; each needs its own name")
        self._branches.add(name)
        return self._below(name)

    def random(self) -> random.Random:
        """Return a source of random numbers that is the same on each re-run."""
        return random.Random(f"{self.seed}/{self.path}")  # noqa: S311 (not for secrets)

    def _below(self, name: str) -> Scope:
        path = f"{self.path}{name}/"
        if len(path) > KEY_LENGTH_MAX // 2:
            raise ValueError(f"tasks are started inside of tasks too deeply, at {path[:80]}…")
        return Scope(path, self.seed)

    def _key(self, name: str) -> str:
        count = self._names.get(name, 0) + 1
        self._names[name] = count
        return f"{self.path}{name}" if count == 1 else f"{self.path}{name}#{count}"


current_scope: ContextVar[Scope] = ContextVar("tenure_workflow_scope")
