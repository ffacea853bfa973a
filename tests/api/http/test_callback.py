"""The worker contract over HTTP: every row of its tables, and who is let in.

The attempts are handed out to a poll; their tokens are those that an endpoint would get.
"""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any, Final

import pytest
import structlog
from msgspec.structs import replace

from tenure.core import limits
from tenure.core.access import task_token
from tenure.core.access.task_token import Claims, Purpose
from tenure.core.task import callback_token
from tenure.core.task.record import Reason, Task, TaskState
from tenure.engine.services.due_tasks import DueTasks
from tenure.engine.task.command import CancelTask
from tests.api.http.site import Site, client_of, site_of
from tests.bounds import ANSWER_S
from tests.engine.world import NAMESPACE, OTHER_NAMESPACE, World, spec
from tests.polling import eventually

OTHER_ID: Final = "019b0000-0000-7000-8000-00000000abcd"
VERBS: Final = ("started", "heartbeat", "completed")
BODIES: Final[dict[str, dict[str, Any]]] = {
    "started": {"attempt": 1, "workerId": "one"},
    "heartbeat": {"attempt": 1, "workerId": "one"},
    "completed": {"attempt": 1, "workerId": "one", "outcome": "SUCCEEDED"},
}
FAILED: Final = {"outcome": "FAILED", "error": {"category": "USER_CODE", "message": "no"}}


class Attempt:
    """An attempt, and the process that works on it."""

    def __init__(self, site: Site, task: Task) -> None:
        self.site = site
        self.task = task
        self.claims = callback_token.claims(task, site.engine.tokens.now_ms)
        self.token = site.engine.tokens.sign(self.claims)

    async def send(self, verb: str, body: Any = None, token: str | None = None) -> Any:
        """Return status and JSON of a callback."""
        headers = {"authorization": f"Bearer {self.token if token is None else token}"}
        options = {"content": body} if isinstance(body, bytes) else {"json": body}
        if isinstance(body, bytes):
            headers["content-type"] = "application/json"
        answer = await self.site.client.post(self.path(verb), headers=headers, **options)
        return answer.status_code, answer.json()

    def path(self, verb: str) -> str:
        return f"/v1/tasks/{self.task.id}/{verb}"

    async def call(self, verb: str, **fields: Any) -> Any:
        """Return the JSON of a callback that has to succeed; its usual fields are given."""
        status, answer = await self.send(verb, {**BODIES[verb], "attempt": self.number, **fields})
        assert status == 200, answer
        return answer

    async def refused(self, verb: str, **fields: Any) -> tuple[int, dict[str, Any]]:
        status, answer = await self.send(verb, {**BODIES[verb], "attempt": self.number, **fields})
        assert answer.pop("message")
        assert answer.pop("reason", "") is not None
        return status, answer

    @property
    def number(self) -> int:
        return self.task.attempt

    async def now(self) -> Task:
        return await self.site.world.task(self.task.id)

    async def state(self) -> str:
        return (await self.now()).state.upper()

    async def shown(self) -> Any:
        answer = await self.site.call("GET", f"/v1/tasks/{self.task.id}/attempts")
        return answer["attempts"]


async def attempt(site: Site, **changes: Any) -> Attempt:
    worker = await site.world.worker(site.engine, slots=100)
    task = await site.world.held(site.engine, worker, spec=spec(**changes))
    return Attempt(site, task)


async def pass_time(site: Site, ms: int) -> None:
    """Let time pass, and everything happen that was due."""
    await site.world.watch(site.engine, ms)
    await site.world.round(DueTasks(), site.engine)


async def next_attempt(of: Attempt) -> Attempt:
    """Hand the task of an attempt out again."""
    world, engine = of.site.world, of.site.engine
    worker = await world.worker(engine)
    (task,) = await world.claim(engine, worker)
    assert task.id == of.task.id
    return Attempt(of.site, task)


# -- Section 3: requests and answers


async def test_a_start_is_acknowledged_and_confirms_the_attempt(site: Site) -> None:
    one = await attempt(site)
    answer = await one.call("started", startedAt="2025-01-15T10:00:00Z")
    assert answer.keys() == {"acknowledged", "serverTime"}
    assert answer["acknowledged"] is True
    assert await one.state() == "RUNNING"
    (shown,) = await one.shown()
    assert shown["callback"] == {"workerId": "one", "startedAt": "2025-01-15T10:00:00.000Z"}
    # A lost answer: the same process asks again.
    assert (await one.call("started"))["acknowledged"] is True


async def test_a_start_by_another_worker_is_refused(site: Site) -> None:
    one = await attempt(site)
    await one.call("started")
    told = await one.refused("started", workerId="two")
    assert told == (409, {"error": "wrong_state", "state": "RUNNING"})


async def test_a_start_after_a_cancel_is_told_the_state(site: Site) -> None:
    one = await attempt(site)
    await site.engine.submit(CancelTask(namespace=NAMESPACE, task_id=one.task.id))
    told = await one.refused("started")
    assert told == (409, {"error": "task_already_terminal", "state": "CANCELLED"})


async def test_a_start_after_the_end_is_told_the_state(site: Site) -> None:
    one = await attempt(site)
    await one.call("completed")
    told = await one.refused("started")
    assert told == (409, {"error": "task_already_terminal", "state": "SUCCEEDED"})


async def test_a_heartbeat_is_acknowledged_and_shown(site: Site) -> None:
    one = await attempt(site, encoding="json")
    answer = await one.call(
        "heartbeat",
        heartbeatAt="2025-01-15T10:05:00+01:00",
        progressPct=45,
        message="Processing partition 5 of 10",
        details={"partition": 5},
    )
    assert answer.keys() == {"acknowledged", "shouldCancel", "serverTime"}
    assert answer["shouldCancel"] is False
    shown = await site.task(one.task.id)
    assert (shown["state"], shown["progressPercent"]) == ("RUNNING", 45)
    assert shown["progressMessage"] == "Processing partition 5 of 10"
    assert shown["heartbeatDetails"] == {"partition": 5}
    (item,) = await one.shown()
    assert item["callback"]["heartbeatAt"] == "2025-01-15T09:05:00.000Z"


async def test_the_instant_of_a_worker_is_never_used(site: Site) -> None:
    one = await attempt(site, heartbeat_timeout_ms=1_000)
    await one.call("heartbeat", heartbeatAt="9999-01-01T00:00:00Z")
    await pass_time(site, 1_000)
    assert (await one.now()).last_outcome == "timed_out"


async def test_a_heartbeat_carries_the_cancel_and_its_grace_begins_then(site: Site) -> None:
    one = await attempt(site)
    await one.call("started")
    cancel = CancelTask(namespace=NAMESPACE, task_id=one.task.id, reason="user_requested")
    await site.engine.submit(cancel)
    await one.call("started")
    answer = await one.call("heartbeat")
    assert answer["shouldCancel"] is True
    assert answer["cancelReason"] == "user_requested"
    told_at_ms = site.engine.tokens.now_ms
    assert (await one.now()).progress.grace_at_ms == told_at_ms
    await pass_time(site, limits.CANCEL_GRACE_MS)
    task = await one.now()
    assert (task.state, task.progress.reason) == (TaskState.FAILED, Reason.CANCEL_TIMEOUT)
    assert (await one.refused("completed", outcome="CANCELLED"))[0] == 409


async def test_a_heartbeat_after_its_timeout_is_told_so_and_other_reports_their_attempt(
    site: Site,
) -> None:
    one = await attempt(site, heartbeat_timeout_ms=1_000)
    await one.call("started")
    await pass_time(site, 1_000)
    assert (await one.refused("heartbeat")) == (410, {"error": "task_expired"})
    mismatch = {"error": "attempt_mismatch", "expectedAttempt": 2, "receivedAttempt": 1}
    assert await one.refused("started") == (409, mismatch)
    assert await one.refused("completed") == (409, mismatch)
    await pass_time(site, 2_000)
    two = await next_attempt(one)
    # 410 only while the task was not handed out again.
    for verb in VERBS:
        assert await one.refused(verb) == (409, mismatch)
    assert (await two.call("started"))["acknowledged"] is True


async def test_a_success_is_acknowledged_with_its_output_and_metrics(site: Site) -> None:
    one = await attempt(site)
    await one.call("started")
    output = {"materializationId": "mat_1", "rowCount": 1_000_000}
    metrics = {"cpuTimeMs": 45_000, "peakMemoryBytes": 2_147_483_648, "ratio": 0.5}
    fields = {"output": output, "metrics": metrics, "completedAt": "2025-01-15T10:30:00Z"}
    answer = await one.call("completed", **fields)
    assert answer.keys() == {"acknowledged", "finalState", "serverTime"}
    assert answer["finalState"] == "SUCCEEDED"
    assert (await site.task(one.task.id))["output"] == output
    (item,) = await one.shown()
    assert item["callback"]["metrics"] == metrics
    assert item["callback"]["completedAt"] == "2025-01-15T10:30:00.000Z"
    # A lost answer: the same report gets the same answer, another one does not.
    assert (await one.call("completed", **fields))["finalState"] == "SUCCEEDED"
    told = await one.refused("completed", output="other")
    assert told == (409, {"error": "task_already_terminal", "state": "SUCCEEDED"})


async def test_an_attempt_that_was_never_started_may_be_completed(site: Site) -> None:
    one = await attempt(site)
    assert (await one.call("completed"))["finalState"] == "SUCCEEDED"


@pytest.mark.parametrize(
    ("category", "is_retried"),
    [
        ("USER_CODE", True),
        ("DATA_QUALITY", False),
        ("INFRASTRUCTURE", True),
        ("CONFIGURATION", False),
        ("TIMEOUT", True),
        ("CANCELLED", False),
    ],
)
async def test_the_category_of_a_failure_says_whether_it_is_retried(
    site: Site, category: str, *, is_retried: bool
) -> None:
    one = await attempt(site)
    error = {"category": category, "message": "KeyError: 'x'", "stackTrace": "Traceback …"}
    metrics = {"cpuTimeMs": 5}
    answer = await one.call(
        "completed", outcome="FAILED", error=error, output=["part"], metrics=metrics
    )
    assert answer["finalState"] == ("PENDING" if is_retried else "FAILED")
    assert ("nextAttemptAt" in answer) is is_retried
    (item, *_) = await one.shown()
    assert item["error"]["category"] == category
    assert item["error"]["stackTrace"] == "Traceback …"
    assert (item["callback"]["output"], item["callback"]["metrics"]) == (["part"], metrics)
    # The same failure again is not another one.
    again = await one.call("completed", outcome="FAILED", error=error)
    assert again["finalState"] == answer["finalState"]
    assert (await one.now()).progress.failure_count == 1


@pytest.mark.parametrize(("retryable", "state"), [(False, "FAILED"), (True, "PENDING")])
async def test_an_explicit_retryable_wins(site: Site, *, retryable: bool, state: str) -> None:
    one = await attempt(site)
    category = "USER_CODE" if not retryable else "DATA_QUALITY"
    error = {"category": category, "message": "no", "retryable": retryable}
    assert (await one.call("completed", outcome="FAILED", error=error))["finalState"] == state


async def test_the_next_attempt_is_named_with_its_time_and_gets_the_details(site: Site) -> None:
    one = await attempt(site)
    await one.call("heartbeat", details={"at": 7})
    answer = await one.call("completed", **FAILED)
    task = await one.now()
    shown = await site.task(one.task.id)
    assert answer["nextAttemptAt"] == shown["runAt"]
    await pass_time(site, task.run_at_ms - site.engine.tokens.now_ms)
    two = await next_attempt(one)
    assert two.number == 2
    assert two.task.progress.details == b'{"at":7}'


async def test_a_cancel_is_completed_with_what_was_done(site: Site) -> None:
    one = await attempt(site)
    await one.call("started")
    await site.engine.submit(CancelTask(namespace=NAMESPACE, task_id=one.task.id))
    done = {"recordsProcessed": 500_000, "lastCheckpoint": "partition-5"}
    answer = await one.call(
        "completed",
        outcome="CANCELLED",
        cancelledDuringPhase="processing",
        partialProgress=done,
        completedAt="2025-01-15T10:15:00Z",
    )
    assert answer["finalState"] == "CANCELLED"
    (item,) = await one.shown()
    assert item["callback"]["cancelledDuringPhase"] == "processing"
    assert item["callback"]["partialProgress"] == done


async def test_a_released_attempt_is_handed_out_again_and_counts_as_no_failure(site: Site) -> None:
    one = await attempt(site)
    await one.call("started")
    answer = await one.call("completed", outcome="RELEASED")
    assert answer["finalState"] == "PENDING"
    assert "nextAttemptAt" in answer
    assert (await one.now()).progress.failure_count == 0
    two = await next_attempt(one)
    assert await one.refused("completed", **FAILED) == (
        409,
        {"error": "attempt_mismatch", "expectedAttempt": 2, "receivedAttempt": 1},
    )
    assert (await two.call("completed"))["finalState"] == "SUCCEEDED"


async def test_a_late_result_is_logged_and_ignored(site: Site) -> None:
    one = await attempt(site)
    await one.call("completed", outcome="RELEASED")
    await next_attempt(one)
    before = await site.world.dump()
    with structlog.testing.capture_logs() as logs:
        await one.refused("completed")
    assert await site.world.dump() == before
    (late,) = [each for each in logs if each["event"] == "callback.late"]
    assert (late["task_id"], late["attempt"]) == (one.task.id, 1)
    assert late["code"] == "attempt_mismatch"


# -- Section 2: who is let in


def crafted(one: Attempt) -> dict[str, str]:
    """Return tokens that open nothing, by what is wrong with them."""
    claims, now_ms = one.claims, one.site.engine.tokens.now_ms
    key = one.site.engine.access_cache.token_keys.signer(now_ms).secret
    far_ms = now_ms + limits.TOKEN_SKEW_MS + 1
    others: dict[str, Claims] = {
        "another tenant": replace(claims, namespace="other/default"),
        "another workspace": replace(claims, namespace=f"{NAMESPACE.partition('/')[0]}/other"),
        "another namespace that exists": replace(claims, namespace=OTHER_NAMESPACE),
        "another run": replace(claims, run_id=OTHER_ID),
        "no run": replace(claims, run_id=""),
        "another task": replace(claims, task_id=OTHER_ID, run_id=OTHER_ID),
        "an attempt that is not in the body": replace(claims, attempt=claims.attempt + 1),
        "another purpose": replace(claims, purpose=Purpose.COMPLETION),
        "expired": replace(claims, expires_at_ms=now_ms),
        "of the future": replace(claims, issued_at_ms=far_ms, expires_at_ms=far_ms + 1),
    }
    raw = base64.urlsafe_b64decode(one.token + "=" * (-len(one.token) % 4))
    return {
        **{what: task_token.sign(key, each) for what, each in others.items()},
        "another key": task_token.sign(b"k" * 32, claims),
        "an unknown number of a key": task_token.sign(key, claims, number=9),
        "an empty key": task_token.sign(b"", claims),
        "garbled": one.token[:-4] + "AAAA",
        "cut": one.token[:-8],
        "no signature": base64.urlsafe_b64encode(raw[:2] + bytes(32) + raw[34:]).decode(),
        "too long": "A" * (limits.TASK_TOKEN_LENGTH_MAX + 1),
        "a JWT": jwt({"alg": "HS256", "typ": "JWT"}, one),
        "alg none": jwt({"alg": "none"}, one),
        "a key id": jwt({"alg": "HS256", "kid": "../../dev/null"}, one),
        "an API key": "tnr_abcdefghij234567_" + "A" * 43,
    }


def jwt(header: dict[str, str], one: Attempt) -> str:
    parts = (header, {"sub": one.task.id, "attempt": 1, "exp": 253_402_300_799})
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts]
    return ".".join([*(text.rstrip("=") for text in texts), ""])


@pytest.mark.parametrize("verb", VERBS)
async def test_only_the_token_of_the_attempt_opens_its_callbacks(site: Site, verb: str) -> None:
    one = await attempt(site)
    before = await site.world.dump()
    for what, token in crafted(one).items():
        status, answer = await one.send(verb, BODIES[verb], token)
        assert (status, answer["error"]) == (401, "invalid_token"), what
    assert await site.world.dump() == before
    assert (await one.call(verb))["acknowledged"] is True


@pytest.mark.parametrize("verb", VERBS)
async def test_the_header_must_be_a_bearer_token_and_sent_once(small: Site, verb: str) -> None:
    one = await attempt(small)
    for headers in ([], [("authorization", f"Basic {one.token}")], [("x-task-token", one.token)]):
        answer = await small.client.post(one.path(verb), headers=headers, json=BODIES[verb])
        assert (answer.status_code, answer.json()["error"]) == (401, "invalid_token")
        assert answer.headers["www-authenticate"] == "Bearer"
    twice = [("authorization", f"Bearer {one.token}")] * 2
    answer = await small.client.post(one.path(verb), headers=twice, json=BODIES[verb])
    assert answer.status_code == 401


async def test_a_good_token_of_an_older_attempt_is_told_so(site: Site) -> None:
    one = await attempt(site)
    await one.call("completed", outcome="RELEASED")
    two = await next_attempt(one)
    for verb in VERBS:
        status, answer = await one.refused(verb)
        assert (status, answer["error"]) == (409, "attempt_mismatch")
        # The older token does not vouch for the newer attempt.
        status, answer = await one.send(verb, {**BODIES[verb], "attempt": two.number})
        assert (status, answer["error"]) == (401, "invalid_token")


async def test_a_task_token_opens_nothing_else(small: Site) -> None:
    one = await attempt(small)
    key = await small.call("POST", "/v1/api-keys", json={"role": "admin", "name": "first"})
    for path in (f"/v1/tasks/{one.task.id}", "/v1/tasks", "/v1/workers", "/metrics"):
        headers = {"authorization": f"Bearer {one.token}"}
        answer = await small.client.get(path, headers=headers)
        assert (answer.status_code, answer.json()["error"]) == (401, "unauthenticated")
    # And callbacks need no API key, whether the server has any or not.
    assert (await one.call("started"))["acknowledged"] is True
    status, answer = await one.send("started", BODIES["started"], key["secret"])
    assert (status, answer["error"]) == (401, "invalid_token")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/tasks/{id}/started/",
        "//v1/tasks/{id}/started",
        "/v1//tasks/{id}/started",
        "/V1/tasks/{id}/started",
        "/v1/tasks/{id}/Started",
        "/v1/tasks/{id}%2fstarted",
        "/v1/tasks/{id}/started%2f",
        "/v1/tasks/x/../{id}/started",
        "/v1/tasks/%7B/started",
        "/v1/tasks/{id}/%73tarted",
        "/v1/tasks/{id}/started;x",
        "/x/v1/tasks/{id}/started",
    ],
)
async def test_a_path_that_only_looks_like_a_callback_needs_a_key(small: Site, path: str) -> None:
    one = await attempt(small)
    await small.call("POST", "/v1/api-keys", json={"role": "admin", "name": "first"})
    answer = await small.raw(
        f"POST {path.format(id=one.task.id)} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {one.token}\r\nContent-Length: 0\r\n"
        "Connection: close\r\n\r\n".encode()
    )
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b'"unauthenticated"' in answer


async def test_a_callback_from_any_host_is_accepted(small: Site) -> None:
    """A proxy in front has another name; a page of another site has no task token."""
    one = await attempt(small)
    async with client_of(small.port, host="public.example", origin="https://x.example") as other:
        headers = {"authorization": f"Bearer {one.token}"}
        answer = await other.post(one.path("started"), headers=headers, json=BODIES["started"])
    assert answer.status_code == 200


# -- The order of the checks


async def test_the_order_of_the_checks(small: Site) -> None:
    one = await attempt(small)
    await one.call("completed")
    expired = small.engine.tokens.sign(replace(one.claims, expires_at_ms=1))
    huge = b'"' + b"x" * limits.REQUEST_BYTES_MAX + b'"'
    wrong_attempt = {"attempt": 2, "workerId": 5, "nonsense": 1}
    rows: tuple[tuple[int, str, Any, str], ...] = (
        (413, "payload_too_large", huge, expired),
        (401, "invalid_token", b"{", expired),
        (400, "invalid_argument", b"{", one.token),
        (400, "invalid_argument", b"[1]", one.token),
        (401, "invalid_token", wrong_attempt, one.token),
        (400, "invalid_argument", {**wrong_attempt, "attempt": 1}, one.token),
        (409, "task_already_terminal", BODIES["started"], one.token),
    )
    for status, code, body, token in rows:
        got, answer = await one.send("started", body, token)
        assert (got, answer["error"]) == (status, code)


BAD_FIELDS: Final[dict[str, list[tuple[dict[str, Any], str]]]] = {
    "started": [
        ({"attempt": None}, "attempt"),
        ({"attempt": "1"}, "attempt"),
        ({"attempt": True}, "attempt"),
        ({"workerId": ""}, "workerId"),
        ({"workerId": None}, "workerId"),
        ({"workerId": "x" * 256}, "workerId"),
        ({"workerId": "a\0"}, "workerId"),
        ({"startedAt": "yesterday"}, "startedAt"),
        ({"startedAt": "2025-01-15T10:00:00"}, "startedAt"),
        ({"startedAt": "1969-12-31T00:00:00Z"}, "startedAt"),
        ({"more": 1}, "more"),
    ],
    "heartbeat": [
        ({"progressPct": -1}, "progressPct"),
        ({"progressPct": 101}, "progressPct"),
        ({"progressPct": 4.5}, "progressPct"),
        ({"progressPct": "45"}, "progressPct"),
        ({"message": "a\0"}, "message"),
        ({"message": "x" * (limits.ERROR_MESSAGE_BYTES_MAX + 1)}, "message"),
        ({"heartbeatAt": 5}, "heartbeatAt"),
        ({"metrics": {}}, "metrics"),
    ],
    "completed": [
        ({"outcome": "DONE"}, "outcome"),
        ({"outcome": None}, "outcome"),
        ({"outcome": "FAILED"}, "error"),
        ({"outcome": "FAILED", "error": {"message": "no category"}}, "error.category"),
        ({"outcome": "FAILED", "error": {"category": "BAD", "message": ""}}, "error.category"),
        ({"error": FAILED["error"]}, "error"),
        ({"outcome": "CANCELLED", "output": 1}, "output"),
        ({"outcome": "RELEASED", "output": 1}, "output"),
        ({"cancelledDuringPhase": "x"}, "cancelledDuringPhase"),
        ({**FAILED, "partialProgress": 1}, "partialProgress"),
        ({"metrics": {f"m{number}": 1 for number in range(65)}}, "metrics"),
        ({"metrics": {"a b": 1}}, "metrics"),
        ({"metrics": {"a": "1"}}, "metrics"),
        ({"completedAt": "10:15"}, "completedAt"),
    ],
}
CASES: Final = [(verb, *case) for verb, cases in BAD_FIELDS.items() for case in cases]


@pytest.mark.parametrize(("verb", "fields", "blamed"), CASES)
async def test_a_bad_field_is_named_and_nothing_is_stored(
    small: Site, verb: str, fields: dict[str, Any], blamed: str
) -> None:
    one = await attempt(small)
    before = await small.world.dump()
    body = {**BODIES[verb], **fields}
    status, answer = await one.send(verb, {k: v for k, v in body.items() if v is not None})
    assert (status, answer["error"]) == (400, "invalid_argument")
    assert answer["field"].startswith(blamed)
    assert await small.world.dump() == before


async def test_progress_that_is_as_large_as_data_is_refused(small: Site) -> None:
    one = await attempt(small)
    large = "x" * limits.PARTIAL_PROGRESS_BYTES_MAX
    told = await one.refused("completed", outcome="CANCELLED", partialProgress=large)
    assert told == (413, {"error": "payload_too_large", "limit": len(large)})


async def test_a_body_of_another_type_is_refused(small: Site) -> None:
    one = await attempt(small)
    headers = {"authorization": f"Bearer {one.token}", "content-type": "text/plain"}
    answer = await small.client.post(one.path("started"), headers=headers, content=b"{}")
    assert (answer.status_code, answer.json()["error"]) == (415, "unsupported_media_type")


# -- Tokens: their life, and their keys


async def test_an_answer_carries_a_fresh_token_from_half_of_the_life_on(site: Site) -> None:
    one = await attempt(site, start_to_close_ms=10**8)
    life_ms = one.claims.expires_at_ms - one.claims.issued_at_ms
    assert life_ms == limits.CALLBACK_TOKEN_MS_MAX
    assert "taskToken" not in await one.call("started")
    await site.world.advance(life_ms // 2 - 1)
    assert "taskToken" not in await one.call("heartbeat")
    await site.world.advance(1)
    assert "taskToken" in await one.call("started")
    answer = await one.call("heartbeat")
    assert answer["tokenExpiresAt"] > answer["serverTime"]
    old, one.token = one.token, answer["taskToken"]
    await site.world.advance(life_ms // 2)
    status, refusal = await one.send("heartbeat", BODIES["heartbeat"], old)
    assert (status, refusal["error"]) == (401, "invalid_token")
    assert (await one.call("completed"))["finalState"] == "SUCCEEDED"


async def test_tokens_of_the_old_key_count_until_they_expire(site: Site) -> None:
    one = await attempt(site, start_to_close_ms=10**8)
    made = await site.call("POST", "/v1/token-keys")
    assert made["number"] == 2
    ring = site.engine.access_cache.token_keys
    assert ring.signer(site.engine.tokens.now_ms).number == 1
    await site.world.advance(limits.TOKEN_KEY_AGE_MS)
    assert task_token.key_number(site.engine.tokens.sign(one.claims)) == 2
    assert (await one.call("started"))["acknowledged"] is True
    # A thief with the old key can sign whatever he wants, until its last token is over.
    stolen = ring.signer(0).secret
    await site.world.advance(limits.CALLBACK_TOKEN_MS_MAX + limits.TOKEN_SKEW_MS)
    forged = task_token.sign(stolen, callback_token.claims(one.task, site.engine.tokens.now_ms))
    status, answer = await one.send("heartbeat", BODIES["heartbeat"], forged)
    assert (status, answer["error"]) == (401, "invalid_token")
    one.token = site.engine.tokens.sign(callback_token.claims(one.task, site.engine.tokens.now_ms))
    assert (await one.call("heartbeat"))["acknowledged"] is True


@pytest.mark.parametrize("dialect", ["postgres"], indirect=True)
async def test_another_server_reads_a_new_key_when_it_sees_its_number(site: Site) -> None:
    other = await site.world.start()
    one = await attempt(site)
    await site.call("POST", "/v1/token-keys")
    await site.world.advance(limits.TOKEN_KEY_AGE_MS)
    token = site.engine.tokens.sign(one.claims)
    assert task_token.key_number(token) == 2
    found = await asyncio.gather(*(other.tokens.verify(token, Purpose.CALLBACK) for _ in range(20)))
    assert set(found) == {one.claims}


# -- Limits


async def test_callbacks_of_one_attempt_have_a_rate_of_their_own(small: Site) -> None:
    one, two = await attempt(small), await attempt(small)
    burst = limits.CALLBACKS_PER_S * limits.CALLBACKS_BURST_S
    for _ in range(burst):
        await one.call("heartbeat")
    status, answer = await one.send("heartbeat", BODIES["heartbeat"])
    assert (status, answer["error"]) == (429, "rate_limited")
    assert answer["retryAfterMs"] == 100
    await two.call("heartbeat")
    await small.world.advance(100)
    await one.call("heartbeat")


async def test_callbacks_are_never_refused_for_load(
    embedded: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HTTP_REQUESTS_MAX", 1)
    async with site_of(embedded, await embedded.start()) as full:
        one = await attempt(full)
        # A request whose body does not come occupies the only place.
        reader, writer = await asyncio.open_connection("127.0.0.1", full.port)
        writer.write(b"POST /v1/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n")
        writer.write(b"Content-Type: application/json\r\n\r\n")
        await writer.drain()
        await eventually(lambda: is_refused(full), within_s=ANSWER_S)
        for verb in VERBS:
            assert (await one.call(verb))["acknowledged"] is True
        writer.close()
        del reader


async def is_refused(site: Site) -> bool:
    return (await site.client.get("/v1/tasks")).status_code == 429
