"""``diagnose``: checks this server, its store and its workers, and reports what is wrong.

Bounded reads, separate from the lanes, and one commit of a row that the server writes anyway. A
store that does not answer is a finding, not a failure.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tenure.core import check
from tenure.core.diagnosis import server_check as rules
from tenure.core.diagnosis import worker_check as fleet_rules
from tenure.core.diagnosis.finding import Finding, Level
from tenure.core.diagnosis.server_check import Disk, Latency
from tenure.core.diagnosis.worker_check import WaitingLine
from tenure.core.limits import DIAGNOSIS_MS_MAX, INSTANT_MS_MAX
from tenure.engine.read.run_diagnosis import look_at_runs
from tenure.engine.worker import command as c
from tenure.errors import NotFound, Unavailable
from tenure.store.failure import Lost, StoreError
from tenure.store.table import diagnosis as reads
from tenure.store.table import listing
from tenure.store.table import queue as queue_table
from tenure.store.table.diagnosis import Extent
from tenure.store.table.listing import Onlooker

if TYPE_CHECKING:
    from tenure.engine.engine import Engine
    from tenure.store.transaction import Tx

_ORDER: Final = (Level.PROBLEM, Level.WARNING, Level.OK)


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """The scope of a diagnosis: one namespace, or all that the caller may see.

    ``namespaces`` are those of the caller's key; a caller for all namespaces also sees the server
    itself. ``client_now_ms`` is the clock of the caller, 0 if it is not to be checked.
    """

    version: str
    namespace: str = ""
    namespaces: tuple[str, ...] = ()
    client_now_ms: int = 0

    @property
    def is_whole(self) -> bool:
        """Return whether the server and its store are checked too."""
        return not self.namespaces

    @property
    def extent(self) -> Extent:
        """Return which rows are checked."""
        return Extent((self.namespace,) if self.namespace else self.namespaces)


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The findings, the worst first; without a store's time the store did not answer."""

    server_id: str
    server_version: str
    server_now_ms: int
    store_now_ms: int
    findings: tuple[Finding, ...]


async def diagnose(engine: Engine, question: Question) -> Diagnosis:
    """Check everything in the scope, within some seconds."""
    check.integer(question.client_now_ms, "clientNowMs", 0, INSTANT_MS_MAX)
    server_now_ms = engine.clock.now_ms()
    findings = []
    if question.client_now_ms:
        ahead_ms = question.client_now_ms - server_now_ms
        findings.append(rules.check_client_clock(client_ahead_ms=ahead_ms))
    look = _Look(engine, question)
    try:
        async with asyncio.timeout(DIAGNOSIS_MS_MAX / 1000):
            await look.take()
    except (StoreError, Unavailable, TimeoutError) as error:
        findings.append(_unreachable(error))
    findings += look.findings
    findings.sort(key=lambda each: _ORDER.index(each.level))
    return Diagnosis(
        server_id=engine.server_id,
        server_version=question.version,
        server_now_ms=server_now_ms,
        store_now_ms=look.store_now_ms,
        findings=tuple(findings),
    )


def _unreachable(error: Exception) -> Finding:
    reason = "conflict"
    if isinstance(error, Lost):
        reason = error.reason
    elif isinstance(error, Unavailable):
        reason = str(error.fields["reason"])
    elif isinstance(error, TimeoutError):
        reason = "timeout"
    message = f"The store does not answer this server ({reason}): the server cannot work."
    advice = "Check the database, its network and the server's log, and run tenure db check."
    return Finding("store", Level.PROBLEM, message, advice, {"reason": reason})


class _Look:
    """One check of the store; findings from before a failure are kept."""

    def __init__(self, engine: Engine, question: Question) -> None:
        self._engine = engine
        self._question = question
        self.findings: list[Finding] = []
        self.store_now_ms = 0

    async def take(self) -> None:
        """Check the store itself, then its content."""
        await self._look_at_time()
        if self._question.namespace:
            await self._check_namespace(self._question.namespace)
        if self._question.is_whole:
            await self._look_at_store()
        await self._look_at_workers()
        await self._look_at_work()
        extent, now_ms = self._question.extent, self.store_now_ms
        self.findings += await look_at_runs(self._engine.store, extent, now_ms=now_ms)

    async def _look_at_time(self) -> None:
        engine = self._engine
        began_ms, began_mono_ms = engine.clock.now_ms(), engine.clock.monotonic_ms()
        self.store_now_ms = await engine.store.read(_now_ms)
        read_ms = engine.clock.monotonic_ms() - began_mono_ms
        # The store read its clock at some time while we waited: that time is not a difference.
        ahead_ms = self.store_now_ms - began_ms
        ahead_ms = min(ahead_ms, 0) if ahead_ms < read_ms else ahead_ms - read_ms
        began_mono_ms = engine.clock.monotonic_ms()
        await engine.submit(c.TouchServer(server_id=engine.server_id))
        commit_ms = engine.clock.monotonic_ms() - began_mono_ms
        if self._question.is_whole:
            self.findings += [
                rules.check_clocks(store_ahead_ms=ahead_ms),
                rules.check_latency(Latency(read_ms, commit_ms)),
            ]

    async def _check_namespace(self, name: str) -> None:
        if not await self._engine.store.read(lambda tx: queue_table.read_namespaces(tx, [name])):
            raise NotFound(f"Namespace {name} was not found.")

    async def _look_at_store(self) -> None:
        store = self._engine.store
        settings = await store.scan(reads.read_settings)
        size_bytes = await store.scan(reads.read_size)
        applied = await store.scan(reads.list_applied)
        servers = await store.scan(reads.list_servers)
        disk = await asyncio.to_thread(_read_disk, settings.get("file", ""))
        self.findings += [
            rules.check_durability(store.dialect, settings),
            rules.check_migrations(applied=applied, known=reads.known_migrations(store.dialect)),
            rules.check_disk(size_bytes=size_bytes, disk=disk),
            rules.check_servers(servers, now_ms=self.store_now_ms),
            rules.check_listening(is_shared=store.is_shared, is_listening=store.is_listening),
        ]
        if store.dialect != rules.SQLITE:
            self.findings += rules.check_database_server(settings)

    async def _look_at_workers(self) -> None:
        now_ms, extent = self.store_now_ms, self._question.extent
        onlooker = Onlooker(now_ms, self._engine.deaf)
        before_ms = fleet_rules.stuck_before_ms(now_ms)
        scan = self._engine.store.scan
        healths = await scan(lambda tx: reads.count_fleet(tx, extent, onlooker))
        sdks = await scan(lambda tx: reads.count_sdks(tx, extent))
        leases = await scan(lambda tx: reads.list_stuck_leases(tx, extent, before_ms=before_ms))
        unreleased = await scan(lambda tx: reads.list_unreleased(tx, extent, before_ms=before_ms))
        since_ms = now_ms - self._engine.settings.seat_stale_ms
        seats = await scan(lambda tx: reads.list_seat_troubles(tx, extent, now_ms, since_ms))
        self.findings += [
            *fleet_rules.check_health(healths),
            *fleet_rules.check_seats(seats),
            *fleet_rules.check_sdks(sdks, server_version=self._question.version),
            *fleet_rules.check_leases(leases, now_ms=now_ms),
            *fleet_rules.check_releases(unreleased, now_ms=now_ms),
        ]

    async def _look_at_work(self) -> None:
        now_ms, extent = self.store_now_ms, self._question.extent
        before_ms = fleet_rules.stuck_before_ms(now_ms)
        scan = self._engine.store.scan
        overdue = await scan(lambda tx: reads.list_overdue(tx, extent, before_ms=before_ms))
        heads = await scan(
            lambda tx: listing.list_waiting(tx, amount=extent.amount, scope=extent.namespaces)
        )
        offered = await scan(lambda tx: reads.list_offered(tx, extent))
        oldest: dict[tuple[str, str, str], int] = {}
        for head in heads:
            if not head.is_paused and not self._engine.access_cache.is_disabled(head.namespace):
                line = (head.namespace, head.queue, head.type)
                oldest[line] = min(head.run_at_ms, oldest.get(line, head.run_at_ms))
        lines = [WaitingLine(*line, run_at_ms) for line, run_at_ms in oldest.items()]
        self.findings += [
            *fleet_rules.check_timers(overdue, now_ms=now_ms),
            *fleet_rules.check_waiting(lines, offered, now_ms=now_ms),
        ]


async def _now_ms(tx: Tx) -> int:
    return await tx.now_ms()


def _read_disk(file: str) -> Disk | None:
    """Return the free space of a SQLite file; that of another store is not known here."""
    if not file:
        return None
    usage = shutil.disk_usage(Path(file).parent)
    wal = Path(f"{file}-wal")
    wal_bytes = wal.stat().st_size if wal.exists() else 0
    return Disk(usage.free, usage.total, wal_bytes)
