"""Query plans of statements about children, with 100,000 of them of 200 runs."""

from __future__ import annotations

from typing import Final

import apsw
import pytest

from tests.store.rows import LOWEST_ID, NAMESPACE, NOW, QUEUE
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

PARENTS: Final = 200
OWNERS: Final = 50
PAGE: Final = 100

ADD_CHILDREN: Final = f"""
INSERT INTO tasks (
    id, namespace, queue, type, state, line, priority, created_at_ms, run_at_ms, attempt, version,
    handed_at_ms, session_no, is_guarded, spec, parent_id, origin
)
SELECT
    CAST('0190a000-0000-7000-8000-' || lpad(to_hex(n), 12, '0') AS uuid), '{NAMESPACE}', '{QUEUE}',
    'mail', 'pending', 1, 5, {NOW}, {NOW} + n, 0, 0, 0, 0, false, '\\x80',
    CAST('0190a000-0000-7000-b000-' || lpad(to_hex(n % {PARENTS}), 12, '0') AS uuid), '\\x80'
FROM generate_series(1, {ROWS}) AS n
"""
# Buffers for the whole statement, about 1.5 times what was seen; a scan of the table has 3,000.
BUFFERS_MAX: Final = {
    "count_children": 35 * OWNERS,
    "find_children": 6 * PAGE,
    "read_children": 6 * PAGE,
    # Each owner that is found is written, with its indexes.
    "insert_closings": 30 * OWNERS,
}
ROWS_MAX: Final = {"count_children": 2 * OWNERS * 20}


def parent_id(number: int) -> str:
    return f"0190a000-0000-7000-b000-{number:012x}"


def parameters(name: str) -> tuple[object, ...]:
    owners = [parent_id(number) for number in range(OWNERS)]
    names = [NAMESPACE] * OWNERS
    match name:
        case "count_children":
            return (names, owners, 20)
        case "insert_closings":
            flags, times = [False] * OWNERS, [NOW] * OWNERS
            return (names, owners, owners, flags, times, [LOWEST_ID] * OWNERS)
        case _:
            return ([NAMESPACE], owners[:1], [LOWEST_ID], PAGE)


@pytest.mark.parametrize("state", ["no statistics", "good statistics"])
async def test_children_are_found_by_their_run(planner: Planner, state: str) -> None:
    for name in BUFFERS_MAX:
        # The plan of the lane is made while the table is empty, and stays.
        await planner.explain_lane(name, parameters(name))
    await planner.lane.execute(ADD_CHILDREN)
    if state == "good statistics":
        await planner.lane.execute("ANALYZE tasks")
    for name, most in BUFFERS_MAX.items():
        for plan in await planner.explain(name, parameters(name)):
            for node in nodes(plan):
                assert rows_looked_at(node) <= ROWS_MAX.get(name, 2 * PAGE), (name, node)
            assert buffers(plan) <= most, (name, buffers(plan))


SQLITE_PLANS: Final = {
    "count_children": {"SEARCH tasks USING COVERING INDEX tasks_parent"},
    "find_children": {"SEARCH tasks USING COVERING INDEX tasks_parent"},
    "find_groups": {"SEARCH groups USING INDEX"},
    "find_live_external": {"SEARCH tasks USING COVERING INDEX tasks_external"},
    "insert_closings": {
        "SEARCH tasks EXISTS USING COVERING INDEX tasks_parent",
        "SEARCH g USING INDEX groups_run",
    },
    "load_groups": {"SEARCH groups USING PRIMARY KEY"},
    "lock_free_tasks": {"SEARCH tasks USING PRIMARY KEY"},
    "read_children": {"SEARCH tasks USING INDEX tasks_parent"},
    "read_open_groups": {"SEARCH groups USING INDEX"},
    "read_results": {"SEARCH journal USING PRIMARY KEY"},
    "take_closing": {"SCAN closings USING INDEX closings_ended"},
    "update_groups": {"SEARCH groups USING PRIMARY KEY"},
}


@pytest.mark.parametrize("name", SQLITE_PLANS)
async def test_sqlite_goes_to_children_by_index(sqlite: apsw.Connection, name: str) -> None:
    lines = explain_sqlite(sqlite, name)
    # What is computed from other steps comes from no table.
    found = [
        line
        for line in lines
        if line.startswith(("SEARCH", "SCAN"))
        and "CONSTANT ROW" not in line
        and "subquery" not in line
        and line not in {"SCAN c", "SCAN s"}
    ]
    assert len(found) == len(SQLITE_PLANS[name]), lines
    for start in SQLITE_PLANS[name]:
        assert any(line.startswith(start) for line in found), lines
