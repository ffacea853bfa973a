"""Searches of tasks over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.store.table import task_search
from tests.api.http.site import UNKNOWN_ID, Site


async def ids(site: Site, query: str) -> list[str]:
    shown = await site.call("GET", f"/v1/tasks?{query}")
    return [each["taskId"] for each in shown["tasks"]]


async def test_tasks_are_searched_by_what_is_in_their_rows(site: Site) -> None:
    world, engine = site.world, site.engine
    plain = await site.enqueue(type="mail_send", labels={"order": "1", "zone": "eu"})
    await world.advance(60_000)
    late = await site.enqueue(type="mail_sort", labels={"order": "2", "zone": "eu"})
    worker = await world.worker(engine)
    failed = await world.running(engine, worker)
    await site.call("POST", f"/v1/tasks/{failed.id}/terminate")
    held = await world.running(engine, worker)
    everything = [held.id, failed.id, late, plain]
    for query, expected in (
        ("state=PENDING,RUNNING", [held.id, late, plain]),
        ("state=FAILED,RUNNING", [held.id, failed.id]),
        ("type=mail_*", [late, plain]),
        ("type=mail_s*&state=FAILED", []),
        ("label=zone=eu", [late, plain]),
        ("label=zone=eu&label=order=2", [late]),
        ("failureReason=TERMINATED", [failed.id]),
        ("errorType=Nothing", []),
        (f"workerId={worker}&state=RUNNING", [held.id]),
        ("createdAfter=2026-01-01T00:00:30Z", [held.id, failed.id, late]),
        ("createdBefore=2026-01-01T00:00:30Z", [plain]),
        (f"idPrefix={plain[:8]}", [each for each in everything if each[:8] == plain[:8]]),
        (f"id={plain}&id={failed.id}&id={UNKNOWN_ID}", [failed.id, plain]),
        (f"id={plain}&id={failed.id}&state=FAILED", [failed.id]),
    ):
        assert await ids(site, query) == expected, query
    for query, field in (
        ("state=PENDING,GONE", "state"),
        ("state=PENDING,", "state"),
        ("failureReason=BAD", "failureReason"),
        ("idPrefix=X", "idPrefix"),
        ("workerId=x", "workerId"),
        ("id=x", "id"),
        ("type=mail_*&totalCount=true", "totalCount"),
        (f"id={plain}&pageToken=x", "pageToken"),
    ):
        refused = await site.refused("GET", f"/v1/tasks?{query}")
        assert refused == (400, "invalid_argument", {"field": field}), query


async def test_a_search_looks_at_some_rows_and_says_how_far_back(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_search, "SEARCHED_AT_ONCE", 2)
    monkeypatch.setattr(task_search, "SEARCHES_MAX", 2)
    wanted = await site.enqueue(labels={"rare": "yes"})
    for _ in range(6):
        await site.world.advance(1_000)
        await site.enqueue()
    first: Any = await site.call("GET", "/v1/tasks?label=rare=yes")
    assert first["tasks"] == []
    assert first["searchedBackTo"] == "2026-01-01T00:00:03.000Z"
    token = first["nextPageToken"]
    second: Any = await site.call("GET", f"/v1/tasks?label=rare=yes&pageToken={token}")
    assert [each["taskId"] for each in second["tasks"]] == [wanted]
    assert "searchedBackTo" not in second or second["nextPageToken"]


async def test_a_page_of_matches_goes_on_after_the_last_one(site: Site) -> None:
    made = [await site.enqueue(labels={"a": "b"}) for _ in range(5)]
    found: list[str] = []
    token = ""
    while True:
        page = await site.call("GET", f"/v1/tasks?label=a=b&pageSize=2&pageToken={token}")
        found += [each["taskId"] for each in page["tasks"]]
        token = page.get("nextPageToken", "")
        if not token:
            break
    assert found == made[::-1]
