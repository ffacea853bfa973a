"""Why a task waits that only endpoints could run."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tenure.core.endpoint.record import Endpoint, EndpointSecret, EndpointSpec, Pause
from tenure.core.explain.endpoint_reason import endpoint_reasons
from tenure.core.explain.fact import Facts
from tenure.core.explain.worker_reason import worker_reasons
from tenure.core.queue import Queue
from tests.core.task.tasks import NAMESPACE, T0, fresh

ENDPOINT = Endpoint(
    id="w",
    namespace=NAMESPACE,
    name="hook",
    queue="default",
    spec=EndpointSpec(url="https://hook.example/", types=("mail",), concurrency=2),
    secrets=(EndpointSecret(bytes(32)),),
    created_at_ms=T0,
)


def facts(*endpoints: Endpoint, held: int = 0) -> Facts:
    return Facts(
        task=fresh(),
        now_ms=T0,
        queue=Queue(NAMESPACE, "default"),
        endpoints=endpoints,
        endpoint_held={"w": held},
    )


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ({"pause": Pause.OPERATOR}, "endpoint_paused", "is paused: by an operator."),
        ({"pause": Pause.GONE}, "endpoint_paused", "has answered that it is gone."),
        ({"is_deleting": True}, "endpoint_deleting", "is deleted."),
        ({"held_until_ms": T0 + 1, "last_error": "no answer"}, "endpoint_held", "no answer"),
    ],
)
def test_an_endpoint_that_takes_nothing_says_why(
    changes: dict[str, Any], code: str, text: str
) -> None:
    (reason,) = worker_reasons(facts(replace(ENDPOINT, **changes)))
    assert reason.code == code
    assert text in reason.message
    assert reason.evidence["endpoint"] == "hook"
    assert ("lastError" in reason.evidence) is ("last_error" in changes)


def test_an_endpoint_with_all_its_attempts_is_busy() -> None:
    (reason,) = endpoint_reasons(facts(ENDPOINT, held=2), [])
    assert (reason.code, reason.evidence["heldCount"]) == ("endpoint_busy", "2")


def test_nothing_is_said_while_one_could_take_it() -> None:
    paused = replace(ENDPOINT, id="x", pause=Pause.OPERATOR)
    assert endpoint_reasons(facts(paused, ENDPOINT, held=1), []) == []
