"""Query plans of the hot statements with 100,000 rows, in every state that misleads a planner.

On PostgreSQL each statement is looked at twice: as a lane runs it (prepared once, with the lane's
settings) and as it runs behind a pooler (planned each time, with the server's own settings).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import apsw
import asyncpg
import pytest

from tenure.core.journal.entry import day_of
from tenure.core.limits import DAYS_AHEAD
from tenure.store import statement
from tenure.store.postgres.store import LANE_SETTINGS
from tenure.store.sqlite import SqliteStore
from tests.store.rows import (
    DAY_MS,
    LOWEST_ID,
    NAMESPACE,
    NOW,
    QUEUE,
    insert,
    pending,
    server_id,
    task_id,
    worker_id,
)

POSTGRES: Final = statement.load("tenure.store.postgres.sql", mark="$")
SQLITE: Final = statement.load("tenure.store.sqlite.sql", mark="?")
ROWS: Final = 100_000
ITEMS: Final = 500
CLAIMED: Final = 100
Plan = dict[str, Any]

# Buffers for the whole statement with ITEMS (or CLAIMED) items, about 1.5 times what was seen. A
# scan of the table would touch 2,000 more, and a scan for each item a million.
BUFFERS_MAX: Final = {
    "claim_tasks": 3 * CLAIMED,
    "load_due": 3 * CLAIMED,
    "load_held": 3 * CLAIMED,
    "load_tasks": 8 * ITEMS,
    "lock_free_tasks": 8 * ITEMS,
    # Today, the days to come and the default partition are asked.
    "load_history": 4 * (DAYS_AHEAD + 2) * ITEMS,
    "peek_tasks": 3 * CLAIMED,
    # One task: its row by its key, and the row of its worker.
    "update_alone": 40,
    "finish_tasks": 20 * ITEMS,
    # Each run by its key, its lock, and the entry with its index.
    "insert_entries": 20 * ITEMS,
    "update_tasks": 28 * ITEMS,
}
# Of rows that a worker holds any will do: where it holds most of them, they are found at once.
INDEXES: Final = {
    "claim_tasks": {"tasks_claim"},
    "load_due": {"tasks_due"},
    "load_tasks": {"tasks_pkey"},
    "lock_free_tasks": {"tasks_pkey"},
    "peek_tasks": {"tasks_claim"},
    "update_alone": {"tasks_pkey"},
    "finish_tasks": {"tasks_pkey"},
    "insert_entries": {"tasks_pkey"},
    "update_tasks": {"tasks_pkey"},
}

ADD_ROWS: Final = """
INSERT INTO tasks (
    id, namespace, queue, type, state, line, priority, created_at_ms, run_at_ms, attempt, version,
    worker_id, handed_at_ms, session_no, due_at_ms, is_guarded, spec
)
SELECT
    CAST('0190a000-0000-7000-8000-' || lpad(to_hex(n), 12, '0') AS uuid), '{namespace}', '{queue}',
    '{type}', CASE WHEN n % 2 = 0 THEN 'pending' ELSE 'running' END, (n + 1) % 2, 5, {now},
    {now} + n, n % 2, 0, CASE WHEN n % 2 = 1 THEN CAST('{worker}' AS uuid) END, 0, 0,
    CASE WHEN n % 2 = 1 THEN {now} + n END, false, '\\x80'
FROM generate_series({first}, {last}) AS n
"""
FINISH_ROWS: Final = """
INSERT INTO history (
    id, namespace, queue, type, state, priority, created_at_ms, run_at_ms, attempt, version,
    handed_at_ms, session_no, spec, finished_at_ms
)
SELECT
    CAST('0190a000-0000-7000-8000-' || lpad(to_hex(n), 12, '0') AS uuid), '{namespace}', '{queue}',
    'mail', 'succeeded', 5, {now}, {now}, 1, 1, 0, 0, '\\x80', {now} + n
FROM generate_series({first}, {last}) AS n
"""


def rows(first: int, last: int, *, type_: str = "mail", sql: str = ADD_ROWS) -> str:
    """Return a statement that makes tasks: even ones wait, odd ones are held and have timers."""
    return sql.format(
        namespace=NAMESPACE,
        queue=QUEUE,
        type=type_,
        now=NOW,
        worker=worker_id(1),
        first=first,
        last=last,
    )


def parameters(name: str, first: int) -> tuple[object, ...]:
    """Return what a statement is called with; items are the tasks from ``first`` on."""
    match name:
        case "claim_tasks" | "peek_tasks":
            return claim_parameters(0, LOWEST_ID)
        case "update_alone":
            given = {"id": task_id(first), "state": "paused", "worker_id": worker_id(1)}
            columns = POSTGRES[name].parameters
            return tuple(given.get(each, _value(each)) for each in columns)
        case "insert_entries":
            return ([_entry(first + 2 * number + (first + 1) % 2) for number in range(ITEMS)],)
        case "load_due":
            return (NOW + ROWS, CLAIMED)
        case "load_held":
            return (NAMESPACE, QUEUE, worker_id(1), CLAIMED)
        case _:
            ids = [task_id(number) for number in range(first, first + ITEMS)]
            columns = POSTGRES[name].parameters
            state = "succeeded" if name == "finish_tasks" else "paused"
            values = {each: [_value(each)] * ITEMS for each in columns} | {"id": ids}
            if "state" in values:
                values["state"] = [state] * ITEMS
            return as_taken(name, tuple(values[each] for each in columns))


def _entry(number: int) -> tuple[object, ...]:
    """Return an entry of a run that a worker holds: each of them has an odd number."""
    id_ = task_id(number)
    holder = (NAMESPACE, id_, worker_id(1), 1)
    return (*holder, day_of(id_), 1, NOW, 100, 1, id_, 1, "charge", None)


def as_taken(name: str, columns: tuple[Any, ...], *shared: object) -> tuple[object, ...]:
    """Return columns of parameters in the form that a statement takes: arrays, or whole rows."""
    is_by_row = POSTGRES[name].takes_rows
    return (list(zip(*columns, strict=True)), *shared) if is_by_row else (*columns, *shared)


def claim_parameters(mark_run_at_ms: int, mark_id: str) -> tuple[object, ...]:
    probe = ([NAMESPACE], [QUEUE], ["mail"], [1], [5], [5], [mark_run_at_ms], [mark_id], [CLAIMED])
    return (*probe, [True])


def _value(column: str) -> object:
    known = {"namespace": NAMESPACE, "is_guarded": False}
    if column in {"worker_id", "last_outcome", "due_at_ms", "progress", "output"}:
        return None
    return known.get(column, NOW if column.endswith("_ms") else 0)


class Planner:
    """Two connections to one database: one as a lane has it, one as a pooler gives it."""

    def __init__(self, lane: Any, pooled: Any) -> None:
        self.lane = lane
        self.pooled = pooled
        self._prepared: set[str] = set()

    async def prepare(self) -> None:
        """Prepare and run every statement on the lane, so that its plan is cached from now on."""
        for name in BUFFERS_MAX:
            await self.explain_lane(name, parameters(name, 1))

    async def explain(self, name: str, values: tuple[object, ...]) -> list[Plan]:
        """Run a statement in both ways and return its plans; nothing of it is kept."""
        return [await self.explain_lane(name, values), await self._explain_pooled(name, values)]

    async def explain_lane(self, name: str, values: tuple[object, ...]) -> Plan:
        """Explain the cached plan: only EXECUTE has it."""
        (part,) = POSTGRES[name].parts
        if name not in self._prepared:
            await self.lane.execute(f"PREPARE {name} AS {part.text}")
            self._prepared.add(name)
        types = [each.name for each in (await self.lane.prepare(part.text)).get_parameters()]
        literals = ", ".join(map(_literal, values, types))
        return await _explained(self.lane, f"EXECUTE {name}({literals})")

    async def _explain_pooled(self, name: str, values: tuple[object, ...]) -> Plan:
        return await _explained(self.pooled, POSTGRES[name].parts[0].text, *values)


async def _explained(connection: Any, sql: str, *values: object) -> Plan:
    transaction = connection.transaction()
    await transaction.start()
    try:
        text = await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", *values)
    finally:
        await transaction.rollback()
    plan: Plan = json.loads(text)[0]["Plan"]
    return plan


def _literal(value: object, type_: str) -> str:
    if isinstance(value, list):
        elements = ",".join(map(_element, value))
        return f"CAST('{{{elements}}}' AS {type_})"
    return "NULL" if value is None else f"CAST('{value}' AS {type_})"


def _element(value: object) -> str:
    if isinstance(value, tuple):
        return '"({})"'.format(",".join("" if each is None else str(each) for each in value))
    return "NULL" if value is None else str(value)


def nodes(plan: Plan) -> Iterator[Plan]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def buffers(plan: Plan) -> int:
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def rows_looked_at(node: Plan) -> float:
    removed = sum(count for key, count in node.items() if key.startswith("Rows Removed"))
    return float((node["Actual Rows"] + removed) * node["Actual Loops"])


def check(name: str, plan: Plan, *, buffers_max: int | None = None) -> None:
    """Assert that a plan goes to its rows by index or place, and looks at no other row."""
    items = CLAIMED if name in {"claim_tasks", "load_due", "load_held", "peek_tasks"} else ITEMS
    for node in nodes(plan):
        assert rows_looked_at(node) <= 2 * items, (name, node)
        if node.get("Relation Name") == "tasks" and name in INDEXES and "Scan" in node["Node Type"]:
            assert node["Node Type"] in {"Index Scan", "Tid Scan"}, (name, node)
            assert node.get("Index Name") in {None, *INDEXES[name]}, (name, node)
    assert buffers(plan) <= (buffers_max or BUFFERS_MAX[name]), (name, buffers(plan))


async def check_all(planner: Planner, first: int, *, but: Sequence[str] = ()) -> None:
    for name in BUFFERS_MAX:
        if name not in but:
            for plan in await planner.explain(name, parameters(name, first)):
                check(name, plan)


@pytest.fixture
async def planner(fresh_dsn: str) -> AsyncIterator[Planner]:
    """Return connections to a database whose statistics change only when a test says so."""
    lane = await asyncpg.connect(fresh_dsn, server_settings=LANE_SETTINGS)
    pooled = await asyncpg.connect(fresh_dsn, statement_cache_size=0)
    for table in ("tasks", "history_default"):
        await lane.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
    yield Planner(lane, pooled)
    await lane.close()
    await pooled.close()


async def test_right_after_a_bulk_load_and_with_good_statistics(planner: Planner) -> None:
    await planner.lane.execute(rows(1, ROWS))
    await planner.lane.execute(rows(ROWS, 2 * ROWS, sql=FINISH_ROWS))
    for _ in range(2):
        await check_all(planner, ROWS // 2, but=["load_history"])
        values = parameters("load_history", ROWS + 5_000)
        for plan in await planner.explain("load_history", values):
            check("load_history", plan)
            assert plan["Actual Rows"] == ITEMS
        await planner.lane.execute("ANALYZE tasks, history")


@pytest.mark.parametrize("earlier", [500, 20_000])
async def test_after_a_vacuum_that_saw_the_table_empty(planner: Planner, earlier: int) -> None:
    await planner.lane.execute(rows(1, earlier))
    await planner.lane.execute("DELETE FROM tasks")
    await planner.lane.execute(POSTGRES["vacuum_tasks"].parts[0].text)
    relation = await planner.lane.fetchrow(
        "SELECT relpages, reltuples FROM pg_class WHERE relname = 'tasks'"
    )
    assert relation["relpages"] > 0
    assert relation["reltuples"] == 0
    await planner.prepare()
    await planner.lane.execute(rows(1, ROWS))
    await check_all(planner, ROWS // 2)


async def test_with_plans_that_were_made_while_the_tables_were_empty(planner: Planner) -> None:
    await planner.prepare()
    await planner.lane.execute(rows(1, ROWS))
    await planner.lane.execute(rows(ROWS, 2 * ROWS, sql=FINISH_ROWS))
    await check_all(planner, ROWS // 2, but=["load_history"])
    for plan in await planner.explain("load_history", parameters("load_history", ROWS + 5_000)):
        check("load_history", plan)


async def test_a_claim_behind_100_000_tasks_of_a_foreign_type(planner: Planner) -> None:
    await planner.lane.execute(rows(1, ROWS, type_="alien"))
    await planner.lane.execute(rows(ROWS + 1, ROWS + 1_000))
    for _ in range(2):
        for plan in await planner.explain("claim_tasks", parameters("claim_tasks", 1)):
            check("claim_tasks", plan)
            assert plan["Actual Rows"] == CLAIMED
        await planner.lane.execute("ANALYZE tasks")


async def test_a_claim_with_a_mark_beside_a_snapshot_that_was_held_open(
    planner: Planner, fresh_dsn: str
) -> None:
    done = 20_000
    holder = await asyncpg.connect(fresh_dsn)
    try:
        async with holder.transaction(isolation="repeatable_read"):
            await holder.fetchval("SELECT count(*) FROM tasks")
            await planner.lane.execute(rows(1, 2 * done))
            await planner.lane.execute(
                "UPDATE tasks SET state = 'running', line = 0, attempt = 1, "
                f"worker_id = '{worker_id(1)}' WHERE line = 1"
            )
            await planner.lane.execute("DELETE FROM tasks")
            await planner.lane.execute(rows(2 * done + 1, 2 * done + 1_000))
            await planner.lane.execute(POSTGRES["vacuum_tasks"].parts[0].text)
            mark = (NOW + 2 * done, task_id(2 * done))
            for plan in await planner.explain("claim_tasks", claim_parameters(*mark)):
                check("claim_tasks", plan)
                assert plan["Actual Rows"] == CLAIMED
            # What the mark saves: without it the claim wades through all that is done.
            for plan in await planner.explain("claim_tasks", parameters("claim_tasks", 1)):
                assert buffers(plan) > 3 * BUFFERS_MAX["claim_tasks"]
    finally:
        await holder.close()


async def test_a_lookup_in_history_asks_each_day_by_its_index(planner: Planner) -> None:
    days = 8
    for day in range(days):
        await planner.lane.execute(f"SELECT ensure_day_partitions({NOW // DAY_MS + day})")
    for day in range(days):
        first, last = day * 5_000 + 1, (day + 1) * 5_000
        finished = rows(first, last, sql=FINISH_ROWS).replace(
            f"{NOW} + n\n", f"{NOW} + n + {day * DAY_MS}\n"
        )
        await planner.lane.execute(finished)
    for plan in await planner.explain("load_history", parameters("load_history", 20_000)):
        check("load_history", plan, buffers_max=4 * days * ITEMS)
        scans = [node for node in nodes(plan) if "Scan" in node["Node Type"]]
        # Only the default partition, which is empty, may be read as a whole.
        assert all(
            node["Node Type"] in {"Index Scan", "Function Scan", "Subquery Scan"}
            or node.get("Relation Name") == "history_default"
            for node in scans
        )


LEASES: Final = 10_000
LEASE_STATEMENTS: Final = (
    "beat_leases",
    "drop_leases",
    "fail_leases",
    "lock_leases",
    "resume_leases",
    "suspect_leases",
)
ADD_LEASES: Final = """
INSERT INTO leases (
    worker_id, namespace, server_id, lease_until_ms, lease_ms, token, beat_at_ms,
    previous_beat_at_ms, total_completed, total_failed, active_count, loop_lag_ms, stuck_count,
    failures
)
SELECT
    CAST('0190a000-0000-7000-9000-' || lpad(to_hex(n), 12, '0') AS uuid), '{namespace}',
    '{server}', {now}, 15000, 1, 0, 0, 0, 0, 0, 0, 0, 0
FROM generate_series(1, {last}) AS n
"""


def leases(last: int) -> str:
    return ADD_LEASES.format(namespace=NAMESPACE, server=server_id(1), now=NOW, last=last)


def lease_parameters(name: str) -> tuple[object, ...]:
    """Return what a statement is called with for ITEMS workers in the middle of the table."""
    first = LEASES // 2
    known: dict[str, object] = {
        "namespace": NAMESPACE,
        "server_id": server_id(2),
        "token": 1,
        "lease_until_ms": NOW,
        "lease_ms": 15_000,
        "suspect_until_ms": NOW,
    }
    values: dict[str, list[object]] = {
        each: [known.get(each, 0)] * ITEMS for each in POSTGRES[name].parameters
    }
    values["worker_id"] = [worker_id(number) for number in range(first, first + ITEMS)]
    # The time is the same for all rows, so it is no array.
    shared = (NOW,) if values.pop("now_ms", None) else ()
    return as_taken(name, tuple(values.values()), *shared)


@pytest.mark.parametrize("state", ["no statistics", "vacuumed while empty", "good statistics"])
async def test_500_heartbeats_look_at_500_leases(planner: Planner, state: str) -> None:
    await planner.lane.execute("ALTER TABLE leases SET (autovacuum_enabled = off)")
    if state == "vacuumed while empty":
        await planner.lane.execute(leases(LEASES))
        await planner.lane.execute("DELETE FROM leases")
        await planner.lane.execute("VACUUM (TRUNCATE off) leases")
    for name in LEASE_STATEMENTS:
        await planner.explain_lane(name, lease_parameters(name))
    await planner.lane.execute(leases(LEASES))
    if state == "good statistics":
        await planner.lane.execute("ANALYZE leases")
    for name in LEASE_STATEMENTS:
        for plan in await planner.explain(name, lease_parameters(name)):
            for node in nodes(plan):
                assert rows_looked_at(node) <= LEASES, (name, node)
            kinds = {"ModifyTable", "LockRows"}
            written = next(node for node in nodes(plan) if node["Node Type"] in kinds)
            assert written["Actual Rows"] == ITEMS
            assert buffers(plan) <= 12 * ITEMS, (name, buffers(plan))


ADD_WORKERS: Final = """
INSERT INTO workers (
    id, namespace, queue, types, instance_key, registered_at_ms, status, mode, slots, name,
    hostname, pid, software_version, labels, session_no, release_pending, version
)
SELECT
    CAST('0190a000-0000-7000-9000-' || lpad(to_hex(n), 12, '0') AS uuid), '{namespace}',
    '{queue}', '["mail"]', CAST(n AS text), {now}, 'online', 'poll', {slots}, '', '', 1, '', '{{}}',
    0, false, 0
FROM generate_series(1, {last}) AS n
"""


def workers(last: int) -> str:
    """Return a statement that makes workers, of which the first one holds every second task."""
    return ADD_WORKERS.format(namespace=NAMESPACE, queue=QUEUE, now=NOW, slots=CLAIMED, last=last)


@pytest.mark.parametrize("name", ["lock_receivers", "share_workers"])
@pytest.mark.parametrize("state", ["no statistics", "vacuumed while empty", "good statistics"])
async def test_500_receivers_are_found_by_key_and_counted_up_to_their_slots(
    planner: Planner, state: str, name: str
) -> None:
    values = ([worker_id(number) for number in range(1, ITEMS + 1)],)
    for table in ("workers", "leases"):
        await planner.lane.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
    if state == "vacuumed while empty":
        for sql in (rows(1, ITEMS), workers(ITEMS), leases(ITEMS)):
            await planner.lane.execute(sql)
        for table in ("tasks", "workers", "leases"):
            await planner.lane.execute(f"DELETE FROM {table}")
            await planner.lane.execute(f"VACUUM (TRUNCATE off) {table}")
    await planner.explain_lane(name, values)
    for sql in (rows(1, ROWS), workers(LEASES), leases(LEASES)):
        await planner.lane.execute(sql)
    if state == "good statistics":
        await planner.lane.execute("ANALYZE tasks, workers, leases")
    for plan in await planner.explain(name, values):
        for node in nodes(plan):
            assert rows_looked_at(node) <= LEASES, node
        assert plan["Actual Rows"] == ITEMS
        assert buffers(plan) <= 15 * ITEMS, buffers(plan)
    # This one holds 50,000 tasks.
    for plan in await planner.explain(name, ([worker_id(1)],)):
        assert buffers(plan) <= 3 * CLAIMED, buffers(plan)


SQLITE_PLANS: Final = {
    "claim_tasks": ["USING INDEX tasks_claim"],
    "count_held": ["USING COVERING INDEX tasks_held"],
    "find_following_entries": ["USING PRIMARY KEY"],
    "finish_tasks": ["USING PRIMARY KEY"],
    "insert_entries": ["USING PRIMARY KEY"],
    "load_cancelling": ["USING INDEX tasks_cancelling"],
    "load_due": ["USING INDEX tasks_due"],
    "load_held": ["USING INDEX tasks_held"],
    "load_history": ["USING PRIMARY KEY"],
    "load_suspects": ["USING INDEX tasks_held"],
    "load_tasks": ["USING PRIMARY KEY"],
    "lock_free_tasks": ["USING PRIMARY KEY"],
    "read_entries": ["USING PRIMARY KEY"],
    "read_foreign_entry": ["USING PRIMARY KEY"],
    "read_journal_ends": ["USING PRIMARY KEY"],
    "read_key_entries": ["USING PRIMARY KEY"],
    "read_own_entries": ["USING PRIMARY KEY"],
    "next_due": ["USING COVERING INDEX tasks_due"],
    "peek_tasks": ["USING INDEX tasks_claim"],
    "read_tasks": ["USING PRIMARY KEY"],
    "update_tasks": ["USING PRIMARY KEY"],
}
# How the statements name what is given.
GIVEN: Final = {"SCAN e", "SCAN n", "SCAN o LEFT-JOIN"}
SQLITE_ROWS: Final = f"""
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {ROWS})
INSERT INTO tasks (
    id, namespace, queue, type, state, line, priority, created_at_ms, run_at_ms, attempt, version,
    worker_id, handed_at_ms, session_no, due_at_ms, is_guarded, spec
)
SELECT
    '0190a000-0000-7000-8000-' || printf('%012x', n), '{NAMESPACE}', '{QUEUE}', 'mail',
    iif(n % 2, 'running', 'pending'), (n + 1) % 2, 5, {NOW}, {NOW} + n, n % 2, 0,
    iif(n % 2, '{worker_id(1)}', NULL), 0, 0, iif(n % 2, {NOW} + n, NULL), 0, x'80'
FROM numbers
"""


@pytest.fixture
async def sqlite(sqlite_store: SqliteStore, tmp_path: Path) -> AsyncIterator[apsw.Connection]:
    """Return a connection with the stability of plans that the store's own have."""
    await insert(sqlite_store, pending(1))
    connection = apsw.Connection(str(tmp_path / "tenure.db"))
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.execute("DELETE FROM tasks")
    yield connection
    connection.close()


def explain_sqlite(connection: apsw.Connection, name: str) -> list[str]:
    """Return what SQLite does with the live and the finished tasks, for each part that reads."""
    lines = []
    for part in SQLITE[name].parts:
        values = (None,) * part.parameter_count
        steps = connection.execute(f"EXPLAIN QUERY PLAN {part.text}", values).fetchall()
        lines += [str(step[3]) for step in steps]
    return lines


@pytest.mark.parametrize("state", ["empty", "loaded", "analyzed"])
async def test_sqlite_goes_to_its_rows_by_index(sqlite: apsw.Connection, state: str) -> None:
    if state != "empty":
        sqlite.execute(SQLITE_ROWS)
    if state == "analyzed":
        sqlite.execute("ANALYZE")
    for name, (expected,) in SQLITE_PLANS.items():
        lines = explain_sqlite(sqlite, name)
        searches = [line for line in lines if line.startswith(("SEARCH", "SCAN"))]
        # What is given comes from no table.
        searches = [line for line in searches if "CONSTANT ROW" not in line and line not in GIVEN]
        assert searches, name
        assert all(expected in line for line in searches), (name, lines)
        assert not any("TEMP B-TREE FOR ORDER BY" in line for line in lines), (name, lines)


@pytest.mark.parametrize("state", ["empty", "loaded", "analyzed"])
async def test_sqlite_counts_what_a_worker_holds_by_index(
    sqlite: apsw.Connection, state: str
) -> None:
    if state != "empty":
        sqlite.execute(SQLITE_ROWS)
    if state == "analyzed":
        sqlite.execute("ANALYZE")
    searches = [line for line in explain_sqlite(sqlite, "lock_receivers") if "SUBQUERY" not in line]
    assert searches == [
        "SEARCH w USING PRIMARY KEY (id=?)",
        "SEARCH q USING PRIMARY KEY (namespace=? AND name=?) LEFT-JOIN",
        "SEARCH l USING PRIMARY KEY (worker_id=?) LEFT-JOIN",
        "SEARCH h USING COVERING INDEX tasks_held (namespace=? AND queue=? AND worker_id=?)",
    ]


# All of it: with less, each waiting task of a line is looked at.
NEXT_LINES: Final = {
    "list_waiting": ["((namespace,queue,type,line,priority,run_at_ms)>(?,?,?,?,?,?))"],
    "list_waiting_in": [
        "(namespace=?)",
        "(namespace=? AND (queue,type,line,priority,run_at_ms)>(?,?,?,?,?))",
    ],
}


@pytest.mark.parametrize("name", NEXT_LINES)
@pytest.mark.parametrize("state", ["empty", "loaded", "analyzed"])
async def test_sqlite_goes_over_the_waiting_tasks_of_a_line_to_the_next(
    sqlite: apsw.Connection, state: str, name: str
) -> None:
    if state != "empty":
        sqlite.execute(SQLITE_ROWS)
    if state == "analyzed":
        sqlite.execute("ANALYZE")
    lines = explain_sqlite(sqlite, name)
    assert [line for line in lines if line.startswith("SEARCH c ")] == [
        f"SEARCH c USING COVERING INDEX tasks_claim {by}" for by in NEXT_LINES[name]
    ], lines
    assert not any("TEMP B-TREE FOR ORDER BY" in line for line in lines), lines
