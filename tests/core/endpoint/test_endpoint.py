"""What the answer of an endpoint means, when it is left alone, and how envelopes are signed."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

import pytest
from msgspec.structs import replace

from tenure.core import limits
from tenure.core.endpoint import check, hold, signature, verdict
from tenure.core.endpoint.record import Endpoint, EndpointSecret, EndpointSpec, Pause
from tenure.core.endpoint.verdict import Delivery, Verdict
from tenure.errors import InvalidArgument

NOW = 1_763_600_000_000
SPEC = EndpointSpec(url="https://hook.example/", types=("mail",))
ENDPOINT = Endpoint(
    id="w",
    namespace="acme/default",
    name="hook",
    queue="default",
    spec=SPEC,
    secrets=(EndpointSecret(bytes(32)),),
    created_at_ms=NOW,
)
FAILED = Delivery(verdict=Verdict.FAILED, error="no")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        *((status, Verdict.ACCEPTED) for status in (200, 201, 202, 204, 299, 409)),
        *((status, Verdict.BUSY) for status in (429, 503)),
        *((status, Verdict.REFUSED) for status in (400, 413, 415, 422)),
        (410, Verdict.GONE),
        *((status, Verdict.FAILED) for status in (100, 199, 300, 301, 302, 307, 308, 399)),
        *(
            (status, Verdict.FAILED)
            for status in (401, 403, 404, 405, 408, 418, 500, 502, 504, 599)
        ),
    ],
)
def test_a_status_means_one_thing(status: int, expected: Verdict) -> None:
    found = verdict.answered(status, None, now_ms=NOW, took_ms=7)
    assert (found.verdict, found.took_ms) == (expected, 7)
    assert bool(found.error) is (expected is not Verdict.ACCEPTED)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        (None, limits.ENDPOINT_BUSY_MS),
        ("", limits.ENDPOINT_BUSY_MS),
        ("soon", limits.ENDPOINT_BUSY_MS),
        ("-1", limits.ENDPOINT_BUSY_MS),
        ("1.5", limits.ENDPOINT_BUSY_MS),
        ("\u0661", limits.ENDPOINT_BUSY_MS),
        ("0", 0),
        ("7", 7_000),
        (" 7 ", 7_000),
        ("3600", 3_600_000),
        ("3601", limits.ENDPOINT_BUSY_MS_MAX),
        ("9" * 5_000, limits.ENDPOINT_BUSY_MS_MAX),
        ("Thu, 20 Nov 2025 00:53:30 GMT", 10_000),
        ("Thu, 20 Nov 2025 00:53:10 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", limits.ENDPOINT_BUSY_MS_MAX),
        ("Fri, 99 Dec 9999 23:59:59 GMT", limits.ENDPOINT_BUSY_MS),
    ],
)
def test_a_busy_endpoint_says_when_it_wants_more(text: str | None, ms: int) -> None:
    assert verdict.busy_ms(text, now_ms=NOW) == ms
    assert verdict.answered(429, text, now_ms=NOW).busy_ms == ms
    assert verdict.answered(200, text, now_ms=NOW).busy_ms == 0


def test_a_success_leaves_a_healthy_endpoint_as_it_is_and_opens_another() -> None:
    success = Delivery(verdict=Verdict.ACCEPTED)
    assert hold.after(ENDPOINT, success, NOW) is ENDPOINT
    failing = replace(ENDPOINT, failure_count=9, held_until_ms=NOW + 1, last_error="no")
    opened = hold.after(failing, success, NOW)
    assert (opened.failure_count, opened.held_until_ms, opened.last_error) == (0, 0, "no")
    assert hold.after(failing, Delivery(verdict=Verdict.REFUSED), NOW).failure_count == 0


def test_failures_in_a_row_hold_an_endpoint_longer_each_time() -> None:
    endpoint = ENDPOINT
    held_ms = []
    for _ in range(13):
        endpoint = hold.after(endpoint, FAILED, NOW)
        held_ms.append(max(0, endpoint.held_until_ms - NOW))
    assert held_ms == [0, 0, 0, 0, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, *[60_000] * 3]
    assert hold.hold_ms(10**6) == limits.ENDPOINT_HOLD_MS_MAX
    assert (endpoint.last_error, endpoint.last_error_at_ms) == ("no", NOW)


def test_a_busy_endpoint_is_left_alone_and_did_not_fail() -> None:
    busy = hold.after(ENDPOINT, Delivery(verdict=Verdict.BUSY, error="429", busy_ms=9_000), NOW)
    assert (busy.failure_count, busy.held_until_ms) == (0, NOW + 9_000)
    shorter = hold.after(busy, Delivery(verdict=Verdict.BUSY, error="429", busy_ms=1), NOW)
    assert shorter.held_until_ms == NOW + 9_000


def test_an_endpoint_that_is_gone_is_paused_unless_somebody_has_paused_it() -> None:
    gone = Delivery(verdict=Verdict.GONE, error="410")
    assert hold.after(ENDPOINT, gone, NOW).pause is Pause.GONE
    paused = replace(ENDPOINT, pause=Pause.OPERATOR)
    assert hold.after(paused, gone, NOW).pause is Pause.OPERATOR


@pytest.mark.parametrize(
    ("changes", "held_count", "expected"),
    [
        ({}, 3, 10),
        ({"pause": Pause.OPERATOR}, 3, 0),
        ({"is_deleting": True}, 3, 0),
        ({"held_until_ms": NOW + 1}, 3, 0),
        ({"held_until_ms": NOW}, 3, 10),
        ({"failure_count": 4}, 3, 10),
        ({"failure_count": 5}, 3, 4),
        ({"failure_count": 5}, 10, 10),
    ],
)
def test_the_window_says_what_an_endpoint_may_have(
    changes: dict[str, Any], held_count: int, expected: int
) -> None:
    endpoint = replace(ENDPOINT, **changes)
    assert hold.window(endpoint, held_count=held_count, now_ms=NOW) == expected


def test_a_message_is_signed_with_every_live_secret() -> None:
    old, new = b"o" * 32, b"n" * 32
    endpoint = replace(ENDPOINT, secrets=(EndpointSecret(new), EndpointSecret(old, NOW + 1)))
    assert endpoint.live_secrets(NOW) == (new, old)
    assert endpoint.live_secrets(NOW + 1) == (new,)
    headers = signature.headers(endpoint.live_secrets(NOW), "task:1", 7, b"{}")
    assert (headers["webhook-id"], headers["webhook-timestamp"]) == ("task:1", "7")
    expected = [
        "v1," + base64.b64encode(hmac.digest(key, b"task:1.7.{}", hashlib.sha256)).decode()
        for key in (new, old)
    ]
    assert headers["webhook-signature"] == " ".join(expected)


def test_a_signature_is_that_of_standard_webhooks() -> None:
    """The example of the specification."""
    secret = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = signature.headers(
        [secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_secret_is_shown_once_and_never_printed() -> None:
    text = signature.secret_text(bytes(32))
    assert base64.b64decode(text.removeprefix("whsec_")) == bytes(32)
    assert repr(EndpointSecret(bytes(32))) == "EndpointSecret(…)"
    with pytest.raises(AssertionError):
        EndpointSecret(bytes(31))


BAD: list[tuple[dict[str, Any], str]] = [
    ({"types": ()}, "types"),
    ({"types": ("a b",)}, "types"),
    ({"types": tuple(f"t{number}" for number in range(1_001))}, "types"),
    ({"headers": {f"h{number}": "x" for number in range(21)}}, "headers"),
    ({"headers": {"a b": "x"}}, "headers"),
    ({"headers": {"Transfer-Encoding": "chunked"}}, "headers"),
    ({"headers": {"Webhook-Signature": "x"}}, "headers"),
    ({"headers": {"A": "x", "a": "x"}}, "headers"),
    ({"headers": {"a": ""}}, "headers"),
    ({"headers": {"a": "x\r\nb: c"}}, "headers"),
    ({"headers": {"a": "ä"}}, "headers"),
    ({"headers": {"a": "x" * 4_097}}, "headers"),
    ({"concurrency": 0}, "concurrency"),
    ({"concurrency": 10_001}, "concurrency"),
    ({"timeout_ms": 999}, "timeoutMs"),
    ({"timeout_ms": 900_001}, "timeoutMs"),
]


@pytest.mark.parametrize(("changes", "field"), BAD)
def test_a_bad_field_is_named(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check.check_spec(replace(SPEC, **changes))
    assert caught.value.fields == {"field": field}


def test_good_fields_pass() -> None:
    check.check_spec(SPEC)
    check.check_spec(replace(SPEC, headers={"Authorization": "Bearer a b", "X-1": "!"}))


@pytest.mark.parametrize(
    ("times", "field"),
    [
        ({"heartbeat_interval_ms": 0}, "heartbeatIntervalMs"),
        ({"heartbeat_timeout_ms": 59_999}, "heartbeatTimeoutMs"),
        ({"heartbeat_timeout_ms": 0}, "heartbeatTimeoutMs"),
        ({"delivery_timeout_ms": 0}, "deliveryTimeoutMs"),
        ({"delivery_timeout_ms": 3_600_001}, "deliveryTimeoutMs"),
        ({"token_ms": 999}, "tokenTtlMs"),
        ({"token_ms": 7_200_001}, "tokenTtlMs"),
    ],
)
def test_bad_times_are_named(times: dict[str, int], field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check.times(**times)
    assert caught.value.fields == {"field": field}


def test_times_have_the_defaults_of_the_contract() -> None:
    made = check.times()
    assert (made.heartbeat_interval_ms, made.heartbeat_timeout_ms) == (30_000, 90_000)
    assert (made.delivery_timeout_ms, made.token_ms) == (90_000, 3_600_000)
