"""The heartbeat lane's transaction: leases and tokens, one narrow row per heartbeat."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from tenure.core.task.effect import Stop
from tenure.core.worker import decide as worker_rules
from tenure.core.worker import lease as lease_rules
from tenure.core.worker.lease import Lease
from tenure.core.worker.record import Worker, WorkerStatus
from tenure.engine.command import AnyCommand, TaskRef
from tenure.engine.settings import Settings
from tenure.engine.worker import command as c
from tenure.errors import Rejection
from tenure.store.table import lease as lease_table
from tenure.store.table import stop as stop_table
from tenure.store.table import task as task_table
from tenure.store.table import worker as worker_table
from tenure.store.table.server import touch_server
from tenure.store.transaction import Position, Tx

Placed = tuple[int, c.Heartbeat]
"""A heartbeat and its place among the commands of the batch."""


class Beaten(msgspec.Struct, frozen=True):
    """The answers of one heartbeat batch, the store's time, and the workers that were read."""

    answers: list[object]
    now_ms: int
    workers: dict[str, Worker]


async def run(
    tx: Tx, commands: Sequence[AnyCommand], settings: Settings, position: Position
) -> Beaten:
    """Renew the leases whose token matches; answer the others with a reason.

    ``position`` is the newest timeline of the database that this server has seen.
    """
    answers: list[object] = [None] * len(commands)
    now_ms = await tx.now_ms()
    waiting: list[Placed] = []
    touches: list[tuple[int, c.TouchServer]] = []
    spoken_for: set[str] = set()
    for index, command in enumerate(commands):
        # The most frequent type first: a negative answer takes three times as long.
        if isinstance(command, c.Heartbeat):
            asks = command.beat.lease_ms
            waiting.append((index, _granted(command, settings) if asks else command))
            if command.speaker is not None:
                spoken_for.add(command.worker_id)
        else:
            assert isinstance(command, c.TouchServer)
            touches.append((index, command))
    workers: dict[str, Worker] = {}
    if spoken_for:
        workers, waiting = await _compare_keys(tx, spoken_for, waiting, answers)
    waiting = await _look_first(tx, waiting, workers, answers)
    while waiting:
        # One heartbeat per worker and round: a second one needs the token that the first created.
        first: dict[str, Placed] = {}
        later = [each for each in waiting if first.setdefault(each[1].worker_id, each) is not each]
        await _beat(tx, list(first.values()), workers, answers, now_ms=now_ms)
        waiting = later
    for index, touch in touches:
        await touch_server(tx, touch.server_id, now_ms=now_ms, position=position)
        answers[index] = now_ms
    return Beaten(answers, now_ms, workers)


async def _compare_keys(
    tx: Tx, spoken_for: set[str], waiting: list[Placed], answers: list[object]
) -> tuple[dict[str, Worker], list[Placed]]:
    """Read workers, and keep the heartbeats that have their keys."""
    workers = {each.id: each for each in await worker_table.read_workers(tx, spoken_for)}
    return workers, [each for each in waiting if _is_its_own(each, workers, answers)]


async def _look_first(
    tx: Tx, waiting: list[Placed], workers: dict[str, Worker], answers: list[object]
) -> list[Placed]:
    """Read the workers that poll: their status is told, and a served one is refused."""
    asked = {x.worker_id for _, x in waiting if x.wants_cancels}
    if not asked:
        return waiting
    workers |= {each.id: each for each in await worker_table.read_workers(tx, asked)}
    return [each for each in waiting if _may_beat(each, workers, answers)]


def _may_beat(placed: Placed, workers: dict[str, Worker], answers: list[object]) -> bool:
    """Return whether a worker sends heartbeats; a served one is called instead, and refused."""
    index, command = placed
    worker = workers.get(command.worker_id) if command.wants_cancels else None
    if worker is None or worker.namespace != command.namespace:
        return True
    refusal = worker_rules.served_refusal(worker)
    if refusal is not None:
        answers[index] = refusal.to_error()
    return refusal is None


def _is_its_own(placed: Placed, workers: dict[str, Worker], answers: list[object]) -> bool:
    """Return whether a heartbeat has the API key of its worker; if not, answer it."""
    index, command = placed
    worker = workers.get(command.worker_id)
    if worker is None or worker.namespace != command.namespace:
        # There is no such worker here; the missing lease gives the answer.
        return True
    refusal = worker_rules.speaker_refusal(worker, command.speaker)
    if refusal is not None:
        answers[index] = refusal.to_error()
    return refusal is None


def _granted(command: c.Heartbeat, settings: Settings) -> c.Heartbeat:
    """Let a worker request another lease, within the limits."""
    asked_ms = command.beat.lease_ms
    lease_ms = min(max(asked_ms, settings.lease_least_ms), settings.lease_most_ms)
    if lease_ms == asked_ms:
        return command
    return replace(command, beat=replace(command.beat, lease_ms=lease_ms))


async def _beat(
    tx: Tx,
    commands: Sequence[Placed],
    workers: dict[str, Worker],
    answers: list[object],
    *,
    now_ms: int,
) -> None:
    """Renew and answer; workers that are read for that are added to the known ones."""
    renewed = {
        lease.worker_id: lease
        for lease in await lease_table.beat_leases(
            tx, [(x.worker_id, x.namespace, x.beat) for _, x in commands], now_ms
        )
    }
    leases = await _look_closer(tx, commands, renewed, workers)
    asked = {x.worker_id for _, x in commands if x.wants_cancels and x.worker_id in renewed}
    cancels = await _load_cancels(tx, asked)
    stops = await _take_stops(tx, asked)
    for index, command in commands:
        lease = renewed.get(command.worker_id)
        if lease is None:
            answers[index] = _refusal(command, workers, leases).to_error()
        elif command.wants_cancels:
            worker = workers.get(command.worker_id)
            is_draining = worker is not None and worker.status is WorkerStatus.DRAINING
            answers[index] = c.Renewed(
                lease,
                should_drain=is_draining,
                cancel=tuple(cancels.get(command.worker_id, ())),
                stop=tuple(stops.get(command.worker_id, ())),
            )
        else:
            answers[index] = c.Renewed(lease)


async def _look_closer(
    tx: Tx, commands: Sequence[Placed], renewed: dict[str, Lease], workers: dict[str, Worker]
) -> dict[str, Lease]:
    """Read the reason of a refusal: the lease as it is, and the worker if there is none."""
    if len(renewed) == len(commands):
        return {}
    refused = {x.worker_id for _, x in commands if x.worker_id not in renewed}
    workers.update((each.id, each) for each in await worker_table.read_workers(tx, refused))
    return {each.worker_id: each for each in await lease_table.read_leases(tx, refused)}


async def _load_cancels(tx: Tx, asked: set[str]) -> dict[str, list[TaskRef]]:
    found: dict[str, list[TaskRef]] = {}
    if asked:
        for worker_id, task_id, attempt in await task_table.load_cancelling(tx, asked):
            found.setdefault(worker_id, []).append(TaskRef(task_id, attempt))
    return found


async def _take_stops(tx: Tx, asked: set[str]) -> dict[str, list[Stop]]:
    found: dict[str, list[Stop]] = {}
    if asked:
        for told in await stop_table.take_stops(tx, asked):
            found.setdefault(told.worker_id, []).append(told.stop)
    return found


def _refusal(
    command: c.Heartbeat, workers: dict[str, Worker], leases: dict[str, Lease]
) -> Rejection:
    lease = leases.get(command.worker_id)
    if lease is not None and lease.namespace == command.namespace:
        return lease_rules.token_mismatch(command.worker_id, lease.token)
    worker = workers.get(command.worker_id)
    is_ours = worker is not None and worker.namespace == command.namespace
    return worker_rules.inactive(
        command.worker_id, worker.end_reason if worker is not None and is_ours else None
    )
