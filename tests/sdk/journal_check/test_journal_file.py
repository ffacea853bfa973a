"""An exported journal is read as it was written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tenure.sdk.journal_check import journal_file, trace
from tenure.sdk.journal_check.journal_file import JournalFileError
from tenure.v1 import task_pb2
from tenure.v1.workflow_service_pb2 import WorkflowRun
from tests.sdk.journal_check.journal import BEGUN_AT_MS, entries, mark, recorded, sleep, step

OTHERS = (
    task_pb2.ENTRY_KIND_SIGNAL,
    task_pb2.ENTRY_KIND_CANCEL,
    task_pb2.ENTRY_KIND_PATCH,
    task_pb2.ENTRY_KIND_RETRY,
    task_pb2.ENTRY_KIND_BEGUN,
    task_pb2.ENTRY_KIND_NOTE,
)


def whole() -> tuple[WorkflowRun, list[task_pb2.JournalPage]]:
    """Return a run with an entry of each kind, in two pages, and what is open."""
    run = recorded("sell", input={"item": "lamp"}).run
    run.labels["shop"] = "7"
    run.external_id = "order-7"
    binary = step("picture", 1)
    binary.output, binary.encoding = b"\x00\xff", "bytes"
    failed = step("charge", 2, error="no money")
    failed.error.category = task_pb2.ERROR_CATEGORY_USER_CODE
    failed.error.retryable = False
    failed.error.details = b"[7]"
    child = mark(task_pb2.ENTRY_KIND_CHILD, "1/pack")
    child.output, child.encoding = b"3", "json"
    contents = [
        *(step("reserve", 0, {"a": [1, None]}), binary, failed, sleep("1/sleep", 0), child),
        *(mark(kind, "x") for kind in OTHERS),
        mark(task_pb2.ENTRY_KIND_GROUP, "map:pack"),
    ]
    made = entries(contents)
    made[4].child.task_id, made[4].child.type = "c", "pack"
    made[4].child.state = task_pb2.TASK_STATE_SUCCEEDED
    made[5].signal_id, made[5].sender = "s1", "ann"
    made[-1].group.group_id, made[-1].group.total, made[-1].group.failed = "g", 3, 1
    open_child = task_pb2.OpenChild(
        task_id="d", key="2/pack", type="pack", kind=task_pb2.TASK_KIND_WORKFLOW
    )
    group = task_pb2.OpenGroup(group_id="h", key="map:send", index=4, total=9, spawned=5)
    first = task_pb2.JournalPage(entries=made[:3], open=[open_child], groups=[group], end=12)
    return run, [first, task_pb2.JournalPage(entries=made[3:], end=12)]


def written(results: Any = ()) -> bytes:
    run, pages = whole()
    return b"".join(journal_file.write(run, pages, results))


def test_a_journal_is_read_as_it_was_written() -> None:
    run, pages = whole()
    items = task_pb2.JournalPage(entries=entries([step("0", 0, 1), step("1", 0, 2)]), end=2)
    found = journal_file.read(written([("map:pack", [items])]))
    assert found.run == run
    assert list(found.entries) == [*pages[0].entries, *pages[1].entries]
    assert list(found.open_children) == list(pages[0].open)
    assert list(found.open_groups) == list(pages[0].groups)
    assert list(found.results("map:pack", 0).entries) == list(items.entries)
    assert [each.pos for each in found.results("map:pack", 1).entries] == [2]
    assert not found.results("map:other", 0).entries


def test_payloads_are_json_where_they_are_json() -> None:
    document = json.loads(written())
    assert document["version"] == 1
    assert document["run"]["input"] == {"item": "lamp"}
    assert document["run"]["status"] == "WAITING"
    first, second, third = document["entries"][:3]
    assert first == {
        "pos": 1,
        "atMs": BEGUN_AT_MS + 1_000,
        "kind": "STEP",
        "key": "reserve",
        "output": {"a": [1, None]},
        "encoding": "json",
        "attempts": 1,
        "startedAtMs": BEGUN_AT_MS,
        "tookMs": 5,
        "site": "orders.py:7",
    }
    assert second["outputBase64"] == "AP8="
    assert third["error"]["message"] == "no money"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is not an exported journal"),
        (b"[]", "is not an exported journal"),
        (b'{"version":1}', "is not an exported journal"),
        (b'{"version":2,"run":7}', "has version 2, and this Tenure reads version 1"),
        (b'{"version":1,"run":{"runId":"a","type":"b","status":"GONE"}}', "not known"),
    ],
)
def test_what_is_no_exported_journal_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(JournalFileError, match=words):
        journal_file.read(data)


def test_a_timeline_has_a_lane_for_each_branch() -> None:
    run, pages = whole()
    document = json.loads(b"".join(trace.write(run, pages, BEGUN_AT_MS + 60_000)))
    events = document["traceEvents"]
    lanes = {each["args"]["name"]: each["tid"] for each in events if each["name"] == "thread_name"}
    assert lanes == {"body": 0, "1": 1, "2": 2}
    lasting = {each["name"]: each for each in events if each["ph"] == "X"}
    reserve = lasting["reserve"]
    assert (reserve["tid"], reserve["ts"], reserve["dur"]) == (0, BEGUN_AT_MS * 1_000, 5_000)
    # It began when the last call before its branch had ended.
    nap = lasting["1/sleep"]
    assert (nap["tid"], nap["ts"], nap["dur"]) == (1, (BEGUN_AT_MS + 3_000) * 1_000, 1_000_000)
    assert lasting["2/pack"]["cat"] == "open child"
    assert lasting["map:pack"]["args"]["items"] == 3
    instants = [each["name"] for each in events if each["ph"] == "i"]
    assert instants == ["signal x", "cancel x", "patch x", "retry x", "begun x", "note x"]
