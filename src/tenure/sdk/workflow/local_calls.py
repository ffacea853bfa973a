"""The local steps of a run: made, running here, or waiting for their next attempt."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from tenure.sdk.workflow.ending import Wait
from tenure.sdk.workflow.journal import Entry, Journal
from tenure.sdk.workflow.port import RunPort
from tenure.sdk.workflow.step import Step


class LocalCalls:
    """The calls of a run that its own worker carries out, at the frontier and not before."""

    def __init__(self, port: RunPort, journal: Journal) -> None:
        """Begin with nothing."""
        self._port = port
        self._journal = journal
        self._uncarried: list[Step[Any]] = []
        self._running: dict[str, Step[Any]] = {}
        # Steps that wait for a later attempt of theirs, and until when.
        self._put_off: dict[str, tuple[int, Step[Any]]] = {}

    # -- What the body does

    def add(self, step: Step[Any]) -> None:
        """Take a call."""
        self._uncarried.append(step)

    def give_up(self, step: Step[Any]) -> None:
        """Stop what runs for a call that the body has cancelled."""
        self._put_off.pop(step.key, None)
        if step.key in self._running:
            self._port.stop_step(step)

    # -- What the worker says

    def over(self, step: Step[Any]) -> bool:
        """Hear that a step runs no longer; False if that is known."""
        return self._running.pop(step.key, None) is not None

    def is_running(self, step: Step[Any]) -> bool:
        """Tell whether a step runs."""
        return step.key in self._running

    def put_off(self, step: Step[Any], at_ms: int) -> None:
        """Wait with the next attempt of a step."""
        self._put_off[step.key] = at_ms, step

    def ended(self, key: str) -> None:
        """Hear that the end of a step was delivered, whoever has carried it out."""
        self._put_off.pop(key, None)

    # -- What the run asks

    @property
    def has_uncarried(self) -> bool:
        """Whether a call is still to be carried out."""
        return any(not step.done() for step in self._uncarried)

    @property
    def running(self) -> Collection[Step[Any]]:
        """The steps that run."""
        return self._running.values()

    @property
    def is_waiting(self) -> bool:
        """Whether a step waits for its next attempt."""
        return bool(self._put_off)

    def instants(self) -> Iterator[int]:
        """Yield when the next attempts of steps begin."""
        return (at_ms for at_ms, _ in self._put_off.values())

    def wakes(self) -> list[tuple[int, str, int]]:
        """Return what wakes the run for its steps: when, with which key, and its index."""
        return [(at_ms, f"retry@{key}", 0) for key, (at_ms, _) in self._put_off.items()]

    def waits(self) -> list[Wait]:
        """Return what the run waits for in its steps."""
        return [
            Wait("retry", key, str(at_ms), step.line)
            for key, (at_ms, step) in self._put_off.items()
        ]

    # -- At the frontier

    def carry_out(self, now_ms: int) -> None:
        """Begin what was never recorded, and the attempts whose time has come."""
        if self._uncarried:
            steps, self._uncarried = self._uncarried, []
            for step in steps:
                if not step.done():
                    self._begin(step, now_ms)
        if self._put_off:
            for key, (at_ms, step) in list(self._put_off.items()):
                if at_ms <= now_ms:
                    del self._put_off[key]
                    self._start(step, self._journal.last_retry(key))

    def stop(self) -> None:
        """Stop what runs."""
        for step in list(self._running.values()):
            self._port.stop_step(step)

    def left_open(self) -> list[Step[Any]]:
        """Return the steps that run and that nobody has cancelled."""
        return [step for step in self._running.values() if not step.done()]

    def _begin(self, step: Step[Any], now_ms: int) -> None:
        if step.follows is not None and step.follows.is_coming:
            self._uncarried.append(step)
            return
        retries = self._journal.last_retry(step.key)
        if retries is not None and retries.next_at_ms > now_ms:
            self._put_off[step.key] = retries.next_at_ms, step
        else:
            self._start(step, retries)

    def _start(self, step: Step[Any], retries: Entry | None) -> None:
        self._running[step.key] = step
        self._port.start_step(step, retries)
