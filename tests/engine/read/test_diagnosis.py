"""The doctor's look at a server, its store and its workers, on both databases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tenure.core.diagnosis.finding import Finding, Level
from tenure.core.limits import DIAGNOSED_ROWS_MAX, STUCK_MS, WAITING_PROBLEM_MS
from tenure.engine.access.command import SetQueue
from tenure.engine.clock import SystemClock
from tenure.engine.engine import Engine
from tenure.engine.read.diagnosis import Diagnosis, Question, diagnose
from tenure.engine.worker.command import DrainWorker, EvictWorker, TouchServer
from tenure.errors import InvalidArgument, NotFound
from tenure.store.failure import Conflict, Lost
from tenure.store.sqlite import SqliteStore
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE, World

VERSION = "1.4.0"
LEASE_MS = 30_000


async def diagnosed(engine: Engine, **fields: Any) -> Diagnosis:
    return await diagnose(engine, Question(**{"version": VERSION, **fields}))


async def found(engine: Engine, check: str, **fields: Any) -> list[Finding]:
    diagnosis = await diagnosed(engine, **fields)
    return [each for each in diagnosis.findings if each.check == check]


async def one(engine: Engine, check: str, **fields: Any) -> Finding:
    (finding,) = await found(engine, check, **fields)
    return finding


def truth(world: World) -> str:
    return "true" if world.dialect == "postgres" else "1"


TROUBLES = frozenset(
    {
        *("late_timers", "orphaned_work", "sdk_version"),
        *("stuck_leases", "unreleased_tasks", "worker_health"),
    }
)


async def make_trouble(world: World, engine: Engine, namespace: str) -> None:
    """Make one of each kind of trouble that a namespace can have."""
    old = {"tenure.sdk": "python/1.2.0"}
    fields: dict[str, Any] = {"namespace": namespace, "lease_ms": LEASE_MS, "labels": old}
    await world.worker(engine, "sms", name="alice", **fields)
    gone = await world.worker(engine, "sms", name="bob", **fields)
    await engine.submit(EvictWorker(namespace=namespace, worker_id=gone))
    await world.settle(engine)
    await world.database.execute(
        f"UPDATE workers SET release_pending = {truth(world)} WHERE id = '{gone}'"
    )
    later = world.new("later", run_at_ms=world.clock.now_ms() + 1_000)
    await world.enqueue(engine, world.new(), later, namespace=namespace)


async def multiply_trouble(world: World) -> None:
    """Copy all rows that there are until there are more of each than a diagnosis reads."""
    uuid, json, hexadecimal = "text", "text", "printf('%08x', n)"
    if world.dialect == "postgres":
        uuid, json, hexadecimal = "uuid", "jsonb", "lpad(to_hex(n), 8, '0')"
    text = "CAST({} AS text)"
    new_id = f"CAST(substr({text}, 1, 24) || substr({text}, 33) || {hexadecimal} AS {uuid})"
    changes = {
        "tasks": {"id": new_id.format("id", "id"), "type": "type || n"},
        "leases": {"worker_id": new_id.format("worker_id", "worker_id")},
        "workers": {
            "id": new_id.format("id", "id"),
            "instance_key": "instance_key || n",
            "name": "name || n",
            "labels": f"""CAST('{{"tenure.sdk":"python/1.2.' || n || '"}}' AS {json})""",
            "types": f"""CAST('["sms' || n || '"]' AS {json})""",
        },
    }
    for table, changed in changes.items():
        columns = list((await world.database.rows(f"SELECT * FROM {table}"))[0])
        values = [changed.get(each, each) for each in columns]
        await world.database.execute(
            f"""
            INSERT INTO {table} ({", ".join(columns)})
            WITH RECURSIVE numbers (n) AS (
                SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {DIAGNOSED_ROWS_MAX}
            )
            SELECT {", ".join(values)} FROM {table} CROSS JOIN numbers
            """
        )


async def test_a_server_at_rest_has_no_problems_but_those_of_the_test_database(
    world: World, engine: Engine
) -> None:
    await world.worker(engine)
    diagnosis = await diagnosed(engine, client_now_ms=world.clock.now_ms())
    bad = {each.check for each in diagnosis.findings if each.level is not Level.OK}
    # SQLite is in memory here, and PostgreSQL without the care that costs time.
    assert bad <= {"store_durability", "hints", "store_connections"}
    assert (diagnosis.server_id, diagnosis.server_version) == (engine.server_id, VERSION)
    assert diagnosis.store_now_ms == diagnosis.server_now_ms == world.clock.now_ms()
    checks = {each.check for each in diagnosis.findings}
    assert ("store_vacuum" in checks) == (world.dialect == "postgres")


async def test_the_worst_comes_first(world: World, engine: Engine) -> None:
    await world.add(engine)
    await world.advance(WAITING_PROBLEM_MS)
    levels = [each.level for each in (await diagnosed(engine)).findings]
    order = [Level.PROBLEM, Level.WARNING, Level.OK]
    assert levels == sorted(levels, key=order.index)
    assert levels[0] is Level.PROBLEM


class TestStore:
    async def test_a_file_is_durable_and_has_room(self, tmp_path: Path) -> None:
        clock = SystemClock()
        store = SqliteStore(str(tmp_path / "tenure.db"), clock=clock.now_ms)
        async with Engine(store, clock=clock, services=[]) as engine:
            assert (await one(engine, "store_durability")).evidence == {
                "journalMode": "wal",
                "synchronous": "FULL",
            }
            disk = await one(engine, "disk")
            assert int(disk.evidence["freeBytes"]) > 0
            assert int(disk.evidence["walBytes"]) > 0
            assert (await one(engine, "store_latency")).evidence.keys() == {"readMs", "commitMs"}

    async def test_a_file_without_care_is_a_problem(self, tmp_path: Path) -> None:
        clock = SystemClock()
        store = SqliteStore(str(tmp_path / "tenure.db"), clock=clock.now_ms, synchronous="NORMAL")
        async with Engine(store, clock=clock, services=[]) as engine:
            finding = await one(engine, "store_durability")
        assert (finding.level, finding.evidence["synchronous"]) == (Level.PROBLEM, "NORMAL")

    async def test_the_settings_of_a_database_server_are_read(
        self, world: World, engine: Engine
    ) -> None:
        finding = await one(engine, "store_durability")
        if world.dialect == "sqlite":
            assert finding.evidence["journalMode"] == "memory"
            return
        assert finding.evidence.keys() == {"fsync", "synchronousCommit", "fullPageWrites"}
        assert set(finding.evidence.values()) <= {"on", "off"}
        connections = await one(engine, "store_connections")
        assert 0 < int(connections.evidence["used"]) <= int(connections.evidence["usable"])
        assert int((await one(engine, "store_version")).evidence["version"]) >= 13

    async def test_migrations_are_compared(self, world: World, engine: Engine) -> None:
        assert (await one(engine, "migrations")).level is Level.OK
        flag = "false" if world.dialect == "postgres" else "0"
        await world.database.execute(
            "INSERT INTO schema_migrations (number, name, checksum, is_breaking, applied_at_ms) "
            f"VALUES (9998, 'later', 'x', {flag}, 0)"
        )
        try:
            finding = await one(engine, "migrations")
        finally:
            await world.database.execute("DELETE FROM schema_migrations WHERE number = 9998")
        assert (finding.level, finding.evidence["newer"]) == (Level.WARNING, "9998_later")

    async def test_clocks_are_compared(self, world: World, engine: Engine) -> None:
        now_ms = world.clock.now_ms()
        client = await one(engine, "client_clock", client_now_ms=now_ms + 60_000)
        assert (client.level, client.evidence["clientAheadMs"]) == (Level.PROBLEM, "60000")
        assert await found(engine, "client_clock") == []
        assert (await one(engine, "clock_skew")).level is Level.OK
        if world.dialect == "postgres":
            # Its clock stays where it was.
            world.clock.advance(5_000)
            store = await one(engine, "clock_skew")
            assert (store.level, store.evidence["storeAheadMs"]) == (Level.WARNING, "-5000")

    @pytest.mark.parametrize(
        ("error", "reason"),
        [(Lost("Gone.", reason="connection"), "connection"), (Conflict("Busy."), "conflict")],
    )
    async def test_a_store_that_does_not_answer_is_a_finding(
        self, world: World, engine: Engine, error: Exception, reason: str
    ) -> None:
        world.faults.raise_at("list_settings", error)
        finding = await one(engine, "store")
        assert (finding.level, finding.evidence) == (Level.PROBLEM, {"reason": reason})

    async def test_what_was_found_before_the_store_failed_is_kept(
        self, world: World, engine: Engine
    ) -> None:
        world.faults.raise_at("count_fleet", Lost("Gone.", reason="connection"))
        checks = [each.check for each in (await diagnosed(engine)).findings]
        assert {"store", "migrations"} <= set(checks)
        assert "worker_health" not in checks

    async def test_a_commit_that_fails_is_a_finding(self, world: World, engine: Engine) -> None:
        world.faults.raise_at("touch_server", Lost("Gone.", reason="storage_full"))
        finding = await one(engine, "store")
        assert finding.evidence["reason"] == "storage_full"

    async def test_a_store_that_takes_too_long_is_a_finding(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tenure.engine.read.diagnosis.DIAGNOSIS_MS_MAX", 0)
        assert (await one(engine, "store")).evidence["reason"] == "timeout"

    async def test_servers_that_are_gone_are_found(self, world: World, engine: Engine) -> None:
        other = await world.start()
        await other.submit(TouchServer(server_id=other.server_id))
        worker = await world.worker(other, lease_ms=600_000)
        assert (await one(engine, "servers")).evidence["liveCount"] == "2"
        await world.advance(40_000)
        finding = await one(engine, "servers")
        assert finding.level is Level.WARNING
        assert other.server_id in finding.evidence["gone"]
        await world.beat(engine, worker, 1)
        assert (await one(engine, "servers")).level is Level.OK


class TestWorkers:
    async def test_workers_that_are_unwell(self, world: World, engine: Engine) -> None:
        late = await world.worker(engine, lease_ms=LEASE_MS)
        well = await world.worker(engine, lease_ms=LEASE_MS)
        await world.advance(LEASE_MS - 5_000)
        await world.beat(engine, well, 1)
        finding = await one(engine, "worker_health")
        assert (finding.level, finding.evidence["late"]) == (Level.WARNING, "1")
        engine.deaf = frozenset({well})
        finding = await one(engine, "worker_health")
        assert (finding.level, finding.evidence["deaf"]) == (Level.PROBLEM, "1")
        del late

    async def test_leases_that_nobody_judged(self, world: World, engine: Engine) -> None:
        await world.worker(engine, name="alice", lease_ms=LEASE_MS)
        await world.advance(LEASE_MS + STUCK_MS)
        assert (await one(engine, "stuck_leases")).level is Level.OK
        await world.advance(1)
        finding = await one(engine, "stuck_leases")
        assert (finding.level, finding.evidence["workers"]) == (Level.PROBLEM, "alice")

    async def test_tasks_that_were_not_put_back(self, world: World, engine: Engine) -> None:
        worker = await world.worker(engine, name="alice")
        await world.running(engine, worker)
        await engine.submit(EvictWorker(namespace=NAMESPACE, worker_id=worker))
        await world.settle(engine)
        await world.database.execute(
            f"UPDATE workers SET release_pending = {truth(world)} WHERE id = '{worker}'"
        )
        await world.advance(STUCK_MS + 1)
        finding = await one(engine, "unreleased_tasks")
        assert (finding.level, finding.evidence["workers"]) == (Level.PROBLEM, "alice")

    async def test_sdks_of_another_release(self, world: World, engine: Engine) -> None:
        for sdk in ("python/1.4.7", "python/1.2.0"):
            await world.worker(engine, labels={"tenure.sdk": sdk, "zone": "a"})
        await world.worker(engine)
        finding = await one(engine, "sdk_version")
        assert finding.level is Level.WARNING
        assert (finding.evidence["sdk"], finding.evidence["workerCount"]) == ("python/1.2.0", "1")


class TestWork:
    async def test_timers_that_nobody_looks_at(self, world: World, engine: Engine) -> None:
        await world.add(engine, 2, run_at_ms=world.clock.now_ms() + 1_000)
        await world.advance(1_000 + STUCK_MS)
        assert (await one(engine, "late_timers")).level is Level.OK
        await world.advance(1)
        finding = await one(engine, "late_timers")
        assert (finding.level, finding.evidence["count"]) == (Level.PROBLEM, "2")

    async def test_work_that_no_worker_offers_to_do(self, world: World, engine: Engine) -> None:
        await world.worker(engine, "sms", lease_ms=600_000)
        await world.worker(engine, "mail", queue="slow", lease_ms=600_000)
        await world.add(engine, 3)
        await world.add(engine, type="sms", priority=0)
        await world.advance(WAITING_PROBLEM_MS)
        await world.add(engine, type="push")
        finding = await one(engine, "orphaned_work")
        assert finding.level is Level.PROBLEM
        assert (finding.evidence["queue"], finding.evidence["type"]) == ("default", "mail")
        worker = await world.worker(engine)
        assert (await one(engine, "orphaned_work")).level is Level.OK
        await engine.submit(DrainWorker(namespace=NAMESPACE, worker_id=worker))
        assert (await one(engine, "orphaned_work")).level is Level.PROBLEM

    async def test_what_somebody_held_back_is_no_problem(
        self, world: World, engine: Engine
    ) -> None:
        await world.add(engine)
        await world.advance(WAITING_PROBLEM_MS)
        await engine.submit(SetQueue(namespace=NAMESPACE, name="default", is_paused=True))
        assert (await one(engine, "orphaned_work")).level is Level.OK


class TestScope:
    async def test_a_bound_caller_sees_only_its_namespaces(
        self, world: World, engine: Engine
    ) -> None:
        await world.worker(engine, lease_ms=LEASE_MS)
        await world.add(engine, type="sms")
        await world.advance(LEASE_MS + STUCK_MS + 1)
        mine = await diagnosed(engine, namespaces=(NAMESPACE,))
        problems = {each.check for each in mine.findings if each.level is Level.PROBLEM}
        assert problems == {"worker_health", "stuck_leases", "orphaned_work"}
        assert "disk" not in {each.check for each in mine.findings}
        theirs = await diagnosed(engine, namespaces=(OTHER_NAMESPACE,))
        assert {each.level for each in theirs.findings} == {Level.OK}
        assert NAMESPACE not in repr(theirs)

    async def test_what_others_have_many_of_hides_nothing_from_a_bound_caller(
        self, world: World, engine: Engine
    ) -> None:
        await make_trouble(world, engine, NAMESPACE)
        await multiply_trouble(world)
        await world.advance(1)
        await make_trouble(world, engine, OTHER_NAMESPACE)
        await world.advance(WAITING_PROBLEM_MS + LEASE_MS + STUCK_MS)
        for asked in ({"namespaces": (OTHER_NAMESPACE,)}, {"namespace": OTHER_NAMESPACE}):
            diagnosis = await diagnosed(engine, **asked)
            bad = {each.check for each in diagnosis.findings if each.level is not Level.OK}
            assert bad >= TROUBLES
            evidence = {each.check: each.evidence for each in diagnosis.findings}
            assert evidence["late_timers"]["count"] == "1"
            assert evidence["orphaned_work"]["type"] == "mail"
            assert evidence["stuck_leases"]["workers"] == "alice"
            assert evidence["unreleased_tasks"]["workers"] == "bob"
            assert NAMESPACE not in repr(diagnosis)
        # Others offer what nobody offers here, and the other way round.
        await world.worker(engine, namespace=OTHER_NAMESPACE)
        offered = await one(engine, "orphaned_work", namespaces=(OTHER_NAMESPACE,))
        assert offered.level is Level.OK

    async def test_one_namespace_can_be_asked_for(self, world: World, engine: Engine) -> None:
        await world.add(engine)
        await world.advance(WAITING_PROBLEM_MS)
        assert (await one(engine, "orphaned_work", namespace=NAMESPACE)).level is Level.PROBLEM
        other = await one(engine, "orphaned_work", namespace=OTHER_NAMESPACE)
        assert other.level is Level.OK
        # Who is bound to none still sees the server.
        assert await found(engine, "disk", namespace=OTHER_NAMESPACE)
        with pytest.raises(NotFound, match="nobody/default"):
            await diagnosed(engine, namespace="nobody/default")

    @pytest.mark.parametrize("now_ms", [-1, 10**18])
    async def test_a_clock_that_is_none_is_refused(self, engine: Engine, now_ms: int) -> None:
        with pytest.raises(InvalidArgument):
            await diagnosed(engine, client_now_ms=now_ms)
