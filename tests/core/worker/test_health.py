"""The health that is shown beside the status of a worker."""

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec.structs import replace

from tenure.core.worker.health import Health, judge
from tenure.core.worker.lease import Lease

T0: Final = 1_000_000
LEASE: Final = Lease(
    worker_id="worker-1",
    namespace="acme/default",
    server_id="server-1",
    lease_until_ms=T0 + 15_000,
    lease_ms=15_000,
    beat_at_ms=T0,
)
SYMPTOMS: Final[list[tuple[Health, dict[str, Any]]]] = [
    (Health.SUSPECT, {"suspect_until_ms": T0 + 3_000}),
    (Health.LATE, {"beat_at_ms": T0 - 10_000}),
    (Health.BLOCKED, {"loop_lag_ms": 1_001}),
    (Health.DEAF, {}),
    (Health.STUCK, {"stuck_count": 1}),
]


def test_a_worker_without_symptoms_is_healthy() -> None:
    assert judge(LEASE, now_ms=T0) is Health.HEALTHY


@pytest.mark.parametrize(("health", "changes"), SYMPTOMS, ids=str)
def test_each_symptom_alone_has_its_name(health: Health, changes: dict[str, Any]) -> None:
    is_deaf = health is Health.DEAF
    assert judge(replace(LEASE, **changes), now_ms=T0, is_deaf=is_deaf) is health


@pytest.mark.parametrize("first", range(len(SYMPTOMS)))
def test_of_several_symptoms_the_first_of_the_list_is_shown(first: int) -> None:
    changes: dict[str, Any] = {}
    for _, more in SYMPTOMS[first:]:
        changes |= more
    is_deaf = first <= [health for health, _ in SYMPTOMS].index(Health.DEAF)
    assert judge(replace(LEASE, **changes), now_ms=T0, is_deaf=is_deaf) is SYMPTOMS[first][0]


def test_a_worker_is_late_once_a_second_heartbeat_was_due() -> None:
    assert judge(LEASE, now_ms=T0 + 9_999) is Health.HEALTHY
    assert judge(LEASE, now_ms=T0 + 10_000) is Health.LATE


def test_a_loop_may_lag_for_one_second() -> None:
    assert judge(replace(LEASE, loop_lag_ms=1_000), now_ms=T0) is Health.HEALTHY


def test_health_has_the_names_of_the_design_in_their_order() -> None:
    names = "suspect late blocked deaf stuck healthy"
    assert [each.value for each in Health] == names.split()


def test_a_served_worker_is_late_while_its_last_call_failed() -> None:
    assert judge(replace(LEASE, failures=1), now_ms=T0) is Health.LATE
