"""Query plans of statements about schedules, with 100,000 of them and as many fires."""

from __future__ import annotations

from typing import Final

import apsw
import pytest

from tests.store.rows import NAMESPACE, NOW
from tests.store.test_plan import (
    ROWS,
    Planner,
    buffers,
    explain_sqlite,
    nodes,
    planner,
    rows_looked_at,
    sqlite,
)

__all__ = ["planner", "sqlite"]

PAGE: Final = 100
ADD_SCHEDULES: Final = f"""
INSERT INTO schedules (
    namespace, id, type, state, due_at_ms, failure_count, created_at_ms, changed_at_ms, version,
    spec, progress
)
SELECT
    '{NAMESPACE}', 's' || lpad(CAST(n AS text), 6, '0'), 'mail',
    CASE WHEN n % 10 = 0 THEN 'paused' ELSE 'active' END,
    CASE WHEN n % 10 = 0 THEN NULL ELSE {NOW} + n END, 0, {NOW}, {NOW}, 0, '\\x80', '\\x80'
FROM generate_series(1, {ROWS}) AS n
"""
ADD_FIRES: Final = f"""
INSERT INTO fires (
    namespace, schedule_id, id, key, kind, fire_at_ms, until_ms, recorded_at_ms, task_id, outcome,
    settled_at_ms, reason, count, is_count_exact
)
SELECT
    '{NAMESPACE}', 's' || lpad(CAST(n % 1000 AS text), 6, '0'),
    CAST('0190a000-0000-7000-8000-' || lpad(to_hex(n), 12, '0') AS uuid),
    'schedule:s' || lpad(CAST(n % 1000 AS text), 6, '0') || ':' || lpad(CAST(n AS text), 24, '0'),
    'tick', {NOW} + n, {NOW} + n, {NOW} + n,
    CAST('0190a000-0000-7000-9000-' || lpad(to_hex(n), 12, '0') AS uuid),
    CASE WHEN n % 2 = 0 THEN 'succeeded' END, CASE WHEN n % 2 = 0 THEN {NOW} END, NULL, 1, true
FROM generate_series(1, {ROWS}) AS n
"""
NAMES: Final = [f"s{number:06d}" for number in range(1, PAGE + 1)]
SPACES: Final = [NAMESPACE] * PAGE
# Buffers for the whole statement; a scan of either table has over 1,000.
PLANS: Final[dict[str, tuple[int, tuple[object, ...]]]] = {
    "load_due_schedules": (8 * PAGE, (NOW + ROWS, PAGE)),
    "load_named_schedules": (12 * PAGE, (SPACES, NAMES, NOW + ROWS)),
    "read_due_schedules": (4 * PAGE, (NOW + ROWS, PAGE)),
    "lock_schedules": (12 * PAGE, (SPACES, NAMES)),
    "find_ticks": (
        12 * PAGE,
        (
            SPACES,
            NAMES,
            [f"schedule:{name}:9" for name in NAMES],
            [f"schedule:{name}:99" for name in NAMES],
            PAGE,
        ),
    ),
    "find_open_fires": (
        12 * PAGE,
        (SPACES, [f"0190a000-0000-7000-9000-{n:012x}" for n in range(1, PAGE + 1)]),
    ),
    "find_fires": (12 * PAGE, (SPACES, [f"schedule:{name}/trigger/x" for name in NAMES])),
    "list_fires": (8 * PAGE, (NAMESPACE, NAMES[0], "ffffffff-ffff-ffff-ffff-ffffffffffff", PAGE)),
}


@pytest.mark.parametrize("state", ["no statistics", "good statistics"])
async def test_schedules_and_fires_are_found_by_their_indexes(planner: Planner, state: str) -> None:
    for name, (_, values) in PLANS.items():
        # The plan of the lane is made while the tables are empty, and stays.
        await planner.explain_lane(name, values)
    await planner.lane.execute(ADD_SCHEDULES)
    await planner.lane.execute(ADD_FIRES)
    if state == "good statistics":
        await planner.lane.execute("ANALYZE schedules, fires")
    # A list is no statement of a lane: its plan is made anew when there are statistics.
    names = PLANS.keys() - ({"list_fires"} if state == "no statistics" else set())
    for name in sorted(names):
        most, values = PLANS[name]
        for plan in await planner.explain(name, values):
            for node in nodes(plan):
                assert rows_looked_at(node) <= 2 * PAGE, (name, node)
            assert buffers(plan) <= most, (name, buffers(plan))


SQLITE_PLANS: Final = {
    "load_due_schedules": "SEARCH schedules USING INDEX schedules_due",
    "next_due_schedule": "SEARCH schedules USING COVERING INDEX schedules_due",
    "read_due_schedules": "SEARCH schedules USING INDEX schedules_due",
    "lock_schedules": "SEARCH schedules USING INDEX sqlite_autoindex_schedules_1",
    "update_schedules": "SEARCH schedules USING INDEX sqlite_autoindex_schedules_1",
    "find_ticks": "SEARCH fires USING INDEX sqlite_autoindex_fires_2",
    "find_fires": "SEARCH fires USING INDEX sqlite_autoindex_fires_2",
    "find_open_fires": "SEARCH fires USING INDEX fires_open",
    "list_fires": "SEARCH fires USING INDEX sqlite_autoindex_fires_1",
    "settle_fires": "SEARCH fires USING INDEX sqlite_autoindex_fires_1",
}


@pytest.mark.parametrize("name", SQLITE_PLANS)
async def test_sqlite_goes_to_schedules_by_index(sqlite: apsw.Connection, name: str) -> None:
    lines = explain_sqlite(sqlite, name)
    found = [line for line in lines if line.startswith(("SEARCH", "SCAN"))]
    assert any(line.startswith(SQLITE_PLANS[name]) for line in found), lines
    assert not any(line.startswith("SCAN") for line in found), lines
    assert not any("TEMP B-TREE" in line for line in lines), lines
