"""What a run asks of the worker that holds it, and what it knows of itself."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from tenure.sdk.payload import Payload
from tenure.sdk.workflow.ending import Ending
from tenure.sdk.workflow.journal import Entry
from tenure.v1 import journal_pb2

if TYPE_CHECKING:
    from tenure.sdk.workflow.step import Step


class RunIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Which run it is, and in which generation: what ids, keys and chance follow from.

    ``first_run_id`` is the first one of the runs that were made from each other by a retry; empty
    means that this is the first.
    """

    run_id: str
    type: str = ""
    generation: int = 1
    first_run_id: str = ""
    begun_at_ms: int = 0

    @property
    def seed(self) -> str:
        """What random numbers come from: the same on each re-run, another in each generation.

        A run that was made by a retry goes through what it kept with the numbers of the first run.
        """
        return f"{self.generation}:{self.first_run_id or self.run_id}"

    @property
    def first_number(self) -> int:
        """Where its tasks are numbered from: the same on each re-run, far from other runs."""
        return int.from_bytes(self.seed.encode()[-6:], "big") << 12

    def step_key(self, key: str) -> str:
        """Return what a call is known by outside: the same in runs made from this one."""
        return f"{self.first_run_id or self.run_id}:{self.generation}:{key}"

    def call_id(self, key: str) -> str:
        """Return an id for what a call sends: the server takes it once."""
        return f"{self.run_id}:{self.generation}:{key}"

    def child_id(self, key: str, item: int, at_ms: int) -> str:
        """Return the id of a child, a UUIDv7: a call that is made again names the same child."""
        text = f"{self.call_id(key)}:{item}"
        rest = blake2b(text.encode(), digest_size=10).hexdigest()
        time = f"{at_ms:012x}"
        variant = "89ab"[int(rest[3], 16) & 3]
        return f"{time[:8]}-{time[8:]}-7{rest[:3]}-{variant}{rest[4:7]}-{rest[7:19]}"


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
        """Ask for the entries after a position; what is open comes with those after 0."""
        ...

    def fetch_open(self, open_after: str) -> None:
        """Ask for the open children behind an id; ``Run.take_open`` gets them."""
        ...

    def fetch_group(self, group_key: str, after: int) -> None:
        """Ask for results of a group behind a position; ``Run.take_group_page`` gets them.

        The answer may be asked for again, and has the position that was asked for.
        """
        ...

    def spawn(self, report: journal_pb2.SpawnReport) -> None:
        """Have children stored, however often it is sent; ``Run.children_answered`` says so.

        The report lacks only the task and its attempt.
        """
        ...

    def cancel_children(self, request: journal_pb2.ChildCancel) -> None:
        """Ask children to end, in the same way; after the reports that were given before."""
        ...

    async def signal(self, run_id: str, name: str, payload: Payload, signal_id: str) -> None:
        """Send a signal to another run, once; called in a step, on the user's loop.

        A refusal raises its ``TenureError``.
        """
        ...

    def wake_at(self, at_ms: int | None) -> None:
        """Call ``Run.advance`` at an instant of the server; None: not at all."""
        ...

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call back from the user's loop, outside of any task; one callback at a time."""
        ...

    def post(self, callback: Callable[[], None]) -> None:
        """Call on the user's loop; from any thread."""
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
    def may_linger(self) -> bool:
        """Whether the run may stay for a moment although it waits: slots are free, no drain.

        When this becomes false, the run is woken.
        """
        ...

    @property
    def is_draining(self) -> bool:
        """Whether nothing more is begun, because the worker ends."""
        ...
