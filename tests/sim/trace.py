"""The event log of a world, and the error that ends it."""

from __future__ import annotations

SHOWN_MAX = 40


class Violation(AssertionError):
    """An invariant does not hold; `about` names the tasks and workers concerned."""

    def __init__(self, message: str, *about: str) -> None:
        super().__init__(message)
        self.about = tuple(each for each in about if each)


class Trace:
    """What happened, one line per event, in the order of simulated time."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.now_ms = 0.0

    def note(self, text: str) -> None:
        """Add an event at the present instant."""
        self.lines.append(f"{self.now_ms:9.0f} {text}")

    def about(self, names: tuple[str, ...]) -> list[str]:
        """Return the last events that name one of these, or just the last ones."""
        keys = [short(each) for each in names]
        found = [line for line in self.lines if any(key in line for key in keys)]
        return (found if keys else self.lines)[-SHOWN_MAX:]


def short(name: str) -> str:
    """Return the end of an id, which tells ids of one world apart."""
    return name[-4:]
