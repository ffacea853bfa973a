"""What a run asks of the worker that holds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from tenure.sdk.payload import Payload
from tenure.sdk.workflow.ending import Ending
from tenure.sdk.workflow.journal import Entry

if TYPE_CHECKING:
    from tenure.sdk.workflow.step import Step


class RunPort(Protocol):
    """What a run asks of the worker that holds it."""

    def send(self, entry: Entry) -> None:
        """Have an entry recorded; ``Run.acknowledge`` says where it stands."""
        ...

    def start_step(self, step: Step[Any], retries: Entry | None) -> None:
        """Run a local step; ``Run.step_ended`` or ``step_put_off`` says how it went."""
        ...

    def stop_step(self, step: Step[Any]) -> None:
        """Stop a local step that nobody waits for."""
        ...

    def publish(self, state: Payload | None, percent: float | None, message: str | None) -> None:
        """Show what the run says of itself; what is None stays as it is."""
        ...

    def fetch(self, after: int) -> None:
        """Ask for the entries after a position."""
        ...

    def wake_at(self, at_ms: int | None) -> None:
        """Call ``Run.advance`` at an instant of the server; None: not at all."""
        ...

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back from the user's loop, outside of any task."""
        ...

    def end(self, ending: Ending) -> None:
        """Report that this attempt has nothing more to do."""
        ...

    @property
    def server_now_ms(self) -> int:
        """The time of the server, as far as it is known here."""
        ...

    @property
    def is_certain(self) -> bool:
        """Whether the lease is certain, so that something may be begun."""
        ...

    @property
    def is_draining(self) -> bool:
        """Whether nothing more is begun, because the worker ends."""
        ...
