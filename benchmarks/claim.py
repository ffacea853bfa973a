"""Claims on PostgreSQL with much in the queue: buffers touched, and hand-out rates.

Conditions: 1,000 waiting tasks of the offered type; 1,000,000 of them; 1,000 behind 1,000,000 of a
type that no offer names. The rows come from one set-based statement into a database on which the
engine already runs (its statements were prepared on empty tables), and are looked at right after
the load, without statistics, and again with them.

Buffers are those of the store's own statement with the probes that the engine asks for: the look
from the head of every line, and the next one from the low-water mark, 100 tasks each. The ratios
are the worst of the four. ``snapshot_…``: tasks by claim beside a transaction that stays open.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import msgspec

from benchmarks.context import Context
from benchmarks.database import FIXTURE, Connection
from benchmarks.engine import measure_flow
from benchmarks.flow import backlog_flow, open_callers
from benchmarks.load import INPUT, NAMESPACE, QUEUE, SPEC, TYPE, open_engine
from benchmarks.switch import BY_CLAIM, measure_beside_snapshot
from tenure.core.task.record import Task
from tenure.engine.claim.position import ClaimPositions
from tenure.engine.engine import Engine
from tenure.store import statement
from tenure.store.table import codec
from tenure.store.table import task as task_table
from tenure.store.table.task import Demand

FEW = 1_000
ALIEN = "alien"
OFFERED_PRIORITY = 5
ALIEN_PRIORITY = 0
AMOUNT = 100
WARM_UP_TASKS = 2_000
EXPLAINED_TIMES = 3
SNAPSHOT_LENGTH = 4
SNAPSHOT_ROUNDS = 2
KEY = (NAMESPACE, QUEUE, TYPE)
CLAIM = statement.load("tenure.store.postgres.sql", mark="$")["claim_tasks"].parts[0].text


@dataclass(frozen=True)
class Condition:
    """What waits in the queue."""

    name: str
    offered_count: int
    alien_count: int


@dataclass
class Seen:
    """What was measured in one condition, by name."""

    buffers: dict[str, float] = field(default_factory=dict)
    others: dict[str, float] = field(default_factory=dict)


async def run(context: Context) -> dict[str, float]:
    """Measure each condition on a database of its own."""
    many = context.scale.row_count
    few = await _measure(context, Condition("thousand", FEW, 0))
    million = await _measure(context, Condition("million", many, 0))
    alien = await _measure(context, Condition("alien", FEW, many))
    numbers: dict[str, float] = {}
    for name, seen in (("thousand", few), ("million", million), ("alien", alien)):
        numbers |= {f"postgres.{name}_{key}_buffers": value for key, value in seen.buffers.items()}
        numbers |= {f"postgres.{name}_{key}": value for key, value in seen.others.items()}
    numbers["postgres.million_buffers_ratio"] = _worst(million, few)
    numbers["postgres.alien_buffers_ratio"] = _worst(alien, few)
    numbers |= await _measure_snapshot(context)
    for name, value in numbers.items():
        context.report(name, value)
    return numbers


def _worst(seen: Seen, few: Seen) -> float:
    """Return the worst ratio of buffers; of a single task one page more is a third more."""
    return max(
        value / few.buffers[name]
        for name, value in seen.buffers.items()
        if name.endswith(f"_{AMOUNT}")
    )


async def _measure(context: Context, condition: Condition) -> Seen:
    database = context.postgres()
    engine = await open_engine(database.store())
    async with open_callers(engine) as callers:
        await callers.run_count(WARM_UP_TASKS)
    seen = Seen()
    async with database.connect() as connection:
        await _fill(connection, condition)
        await _look(engine, connection, "loaded", seen)
        # Taken back, so that the engine has no statistics, and the index no dead entries yet.
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("ANALYZE tasks")
        await _look(engine, connection, "analysed", seen)
        await transaction.rollback()
        seen.others["loaded_rate"] = (await backlog_flow(engine, context.scale.seconds)).rate
        await connection.execute("VACUUM (ANALYZE, TRUNCATE off) tasks")
        seen.others["analysed_rate"] = (await backlog_flow(engine, context.scale.seconds)).rate
    await engine.stop()
    return seen


async def _fill(connection: Connection, condition: Condition) -> None:
    # Autovacuum must not bring statistics before they are asked for.
    await connection.execute("ALTER TABLE tasks SET (autovacuum_enabled = off)")
    now_ms = await connection.fetchval(FIXTURE["now_ms"])
    tail = (codec.spec_to(SPEC)[1], INPUT)
    for count, priority, type_ in (
        (condition.alien_count, ALIEN_PRIORITY, ALIEN),
        (condition.offered_count, OFFERED_PRIORITY, TYPE),
    ):
        row = (now_ms, priority, NAMESPACE, QUEUE, type_, *tail)
        await connection.execute(FIXTURE["insert_waiting"], count, *row, timeout=300)


async def _look(engine: Engine, connection: Connection, state: str, seen: Seen) -> None:
    """Count the buffers of a first claim and of the next, of one task and of many."""
    for amount in (1, AMOUNT):
        marks = ClaimPositions(is_on=True)
        head = marks.demands(KEY, amount, 1)
        tasks = await _claim(engine, head)
        assert len(tasks) == amount, f"{len(tasks)} tasks instead of {amount}"
        marks.learn(head, tasks, mono_ms=1, took_ms=1)
        for look, demands in (("head", head), ("next", marks.demands(KEY, amount, 1))):
            name = f"{state}_{look}_{amount}"
            seen.buffers[name], planned, seen.others[f"{name}_us"] = await _explain(
                connection, demands
            )
            most = seen.others.get("planning_buffers", 0.0)
            seen.others["planning_buffers"] = max(planned, most)


async def _claim(engine: Engine, demands: list[Demand]) -> list[Task]:
    """Lock the heads of the lines, as the engine does, and let them go again."""
    return await engine.store.transaction(lambda tx: task_table.claim_tasks(tx, demands))


async def _explain(connection: Connection, demands: list[Demand]) -> tuple[float, float, float]:
    """Return the buffers of a claim, those of its planning, and its time; the last of three."""
    columns = [*zip(*map(msgspec.structs.astuple, demands), strict=True)]
    explained = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {CLAIM}"
    found: list[tuple[float, float, float]] = []
    for _ in range(EXPLAINED_TIMES):
        transaction = connection.transaction()
        await transaction.start()
        (answer,) = json.loads(await connection.fetchval(explained, *columns))
        await transaction.rollback()
        touched, planned = _touched(answer["Plan"]), _touched(answer.get("Planning", {}))
        found.append((touched, planned, answer["Execution Time"] * 1000))
    return found[-1]


def _touched(node: dict[str, float]) -> float:
    return node.get("Shared Hit Blocks", 0) + node.get("Shared Read Blocks", 0)


async def _measure_snapshot(context: Context) -> dict[str, float]:
    """Let tasks flow by claim with and without an open snapshot, in turns."""
    seconds = context.scale.seconds * SNAPSHOT_LENGTH
    beside, alone = 0.0, 0.0
    for _ in range(SNAPSHOT_ROUNDS):
        alone = max(alone, (await measure_flow(context.postgres(), seconds, BY_CLAIM)).rate)
        flow = await measure_beside_snapshot(context.postgres(), seconds, BY_CLAIM)
        beside = max(beside, flow.rate)
    return {
        "postgres.snapshot_rate": beside,
        "postgres.snapshot_rate.floor": alone,
        "postgres.snapshot_rate_ratio": beside / alone,
    }
