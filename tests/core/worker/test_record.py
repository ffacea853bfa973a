"""The record of a worker, and what is other content under one instance key."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.core.worker.record import NewWorker, WorkerMode, create, differences

NEW = NewWorker(
    instance_key="key",
    queue="default",
    types=("mail", "sms"),
    name="mailer",
    hostname="host",
    pid=1,
    software_version="1",
    labels={"zone": "a"},
    lease_ms=20_000,
    key_id="first",
)


def differing(**changes: Any) -> tuple[str, ...]:
    """Return what differs after the first registration with ``NEW``."""
    fields = {name: getattr(NEW, name) for name in NEW.__struct_fields__}
    worker = create(NEW, worker_id="w", namespace="acme/default", now_ms=1)
    return differences(worker, NewWorker(**{**fields, **changes}))


def test_the_same_content_differs_in_nothing() -> None:
    assert differing() == ()


def test_the_order_of_types_the_lease_and_the_api_key_are_no_content() -> None:
    assert differing(types=("sms", "mail"), lease_ms=0, key_id="second") == ()


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"queue": "other"}, "queue"),
        ({"types": ("mail",)}, "types"),
        ({"mode": WorkerMode.POLL}, "mode"),
        ({"slots": 1}, "maxConcurrent"),
        ({"name": ""}, "name"),
        ({"hostname": "other"}, "hostname"),
        ({"pid": 2}, "pid"),
        ({"software_version": "2"}, "version"),
        ({"labels": {}}, "labels"),
    ],
)
def test_other_content_is_named(changes: dict[str, Any], name: str) -> None:
    assert differing(**changes) == (name,)
