"""Input checks: good values pass unchanged, bad ones name their field and nothing else."""

import math
import re
import uuid
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core import check, limits
from tenure.errors import InvalidArgument, PayloadTooLarge

UPPER_CASE_ID = "0192F0C1-0000-7000-8000-00000000000A"
HUGE = pytest.param(10**5000, id="huge")  # Too long to be written as text.
NOT_STRINGS = [None, 1, True, b"a", ["a"], {"a": 1}]
BAD_NAMES = ["", ".", "..", "a b", "a/b", "..%2f", "ä", "a\n", "a\0", "\ud800", "\u200b", "x" * 256]


def refused(call: Callable[[], object], field: str) -> InvalidArgument:
    with pytest.raises(InvalidArgument) as caught:
        call()
    assert caught.value.fields == {"field": field}
    assert caught.value.message.startswith(field)
    return caught.value


@given(st.text())
def test_a_name_passes_exactly_when_it_has_the_documented_form(value: str) -> None:
    is_good = re.fullmatch(r"[A-Za-z0-9._:-]{1,255}", value) and value not in {".", ".."}
    if is_good:
        assert check.name(value, "queue") == value
    else:
        refused(lambda: check.name(value, "queue"), "queue")


@pytest.mark.parametrize("value", ["a", "Q.1_x:y-z", "...", "..a", "x" * 255, "__proto__"])
def test_a_good_name_passes_the_first_and_every_further_time(value: str) -> None:
    assert [check.name(value, "queue") for _ in range(3)] == [value] * 3


@pytest.mark.parametrize("value", [*BAD_NAMES, *NOT_STRINGS])
def test_a_bad_name_is_refused_every_time(value: object) -> None:
    refused(lambda: check.name(value, "queue"), "queue")
    refused(lambda: check.name(value, "queue"), "queue")


@pytest.mark.parametrize("value", ["a", "shop@queue-a", f"{'n' * 127}@{'q' * 127}"])
def test_the_name_of_a_worker_may_have_its_queue_behind_it(value: str) -> None:
    assert check.worker_name(value, "name") == value


@pytest.mark.parametrize("value", [*BAD_NAMES, *NOT_STRINGS, "a@", "@a", "a@b@c", "a@" + "b" * 254])
def test_a_bad_name_of_a_worker_is_refused(value: object) -> None:
    refused(lambda: check.worker_name(value, "name"), "name")


def test_more_names_than_are_remembered_are_still_checked_right() -> None:
    for number in range(limits.NAMES_REMEMBERED_MAX + 2):
        assert check.name(f"flood-{number}", "queue") == f"flood-{number}"
        assert check.namespace(f"flood/{number}") == f"flood/{number}"
    assert check.name("flood-0", "queue") == "flood-0"
    assert check.namespace("flood/0") == "flood/0"


def test_more_worker_ids_than_are_remembered_are_still_checked_right() -> None:
    for number in range(limits.WORKER_IDS_REMEMBERED_MAX + 2):
        worker_id = f"0190a000-0000-7000-8000-{number:012x}"
        assert check.worker_id(worker_id) == worker_id
        assert check.worker_id(worker_id) == worker_id


@pytest.mark.parametrize("value", [*NOT_STRINGS, "", "worker-1", [], {}])
def test_a_bad_worker_id_is_refused_every_time(value: object) -> None:
    refused(lambda: check.worker_id(value), "workerId")
    refused(lambda: check.worker_id(value), "workerId")


@pytest.mark.parametrize(
    ("value", "canonical"),
    [("acme", "acme/default"), ("acme/prod", "acme/prod"), ("acme/default", "acme/default")],
)
def test_a_namespace_has_one_canonical_form(value: str, canonical: str) -> None:
    assert check.namespace(value) == canonical
    assert check.namespace(value) == canonical
    assert check.namespace(canonical) == canonical


@pytest.mark.parametrize("value", ["", "/", "a/", "/b", "a/b/c", "a//b", "../b", "a/..", 5, None])
def test_a_bad_namespace_is_refused(value: object) -> None:
    refused(lambda: check.namespace(value), "namespace")


@given(st.uuids())
def test_a_uuid_passes_in_its_canonical_form_only(value: uuid.UUID) -> None:
    assert check.task_id(str(value)) == str(value)
    refused(lambda: check.task_id(value.hex), "task_id")
    refused(lambda: check.task_id(f"{{{value}}}"), "task_id")
    refused(lambda: check.task_id(f"{value}\n"), "task_id")


@pytest.mark.parametrize("value", [*BAD_NAMES, *NOT_STRINGS, UPPER_CASE_ID])
def test_a_malformed_task_id_is_refused(value: object) -> None:
    refused(lambda: check.task_id(value, "parent"), "parent")


def test_a_payload_passes_up_to_the_limit() -> None:
    largest = bytes(limits.PAYLOAD_BYTES_MAX)
    assert check.payload(b"", "input") == b""
    assert check.payload(largest, "input") is largest
    with pytest.raises(PayloadTooLarge) as caught:
        check.payload(largest + b"x", "input")
    assert caught.value.fields == {"limit": limits.PAYLOAD_BYTES_MAX}
    refused(lambda: check.payload("text", "input"), "input")


@given(st.text())
def test_text_passes_exactly_when_it_fits_and_can_be_stored(value: str) -> None:
    size = len(value.encode(errors="surrogatepass"))
    if size <= 8 and "\0" not in value and not re.search("[\ud800-\udfff]", value):
        assert check.text(value, "message", bytes_max=8) == value
    else:
        refused(lambda: check.text(value, "message", bytes_max=8), "message")


@pytest.mark.parametrize("value", ["a\0b", "\ud800", "123456789", "äöüßé", *NOT_STRINGS])
def test_bad_text_is_refused(value: object) -> None:
    refused(lambda: check.text(value, "message", bytes_max=8), "message")


def test_good_labels_pass_as_a_dictionary() -> None:
    most = {f"key-{number}": "ä" * 128 for number in range(limits.LABELS_MAX)}
    assert check.labels(most) == most
    assert check.labels({"team": ""}) == {"team": ""}
    assert check.labels({}) == {}


@pytest.mark.parametrize(
    ("mapping", "field"),
    [
        ([("a", "b")], "labels"),
        (None, "labels"),
        ({str(number): "" for number in range(10_000)}, "labels"),
        ({"a b": "x"}, "labels"),
        ({1: "x"}, "labels"),
        ({"__proto__": "x"}, "labels"),
        ({"team": 1}, "labels.team"),
        ({"team": None}, "labels.team"),
        ({"team": "x" * 1_000_000}, "labels.team"),
        ({"team": "ä" * 129}, "labels.team"),
        ({"team": "a\0"}, "labels.team"),
        ({"team": "\udfff"}, "labels.team"),
        ({"team": "a\u202eb"}, "labels.team"),
        ({"team": "a\u200bb"}, "labels.team"),
        ({"team": "a\nb"}, "labels.team"),
    ],
)
def test_bad_labels_are_refused(mapping: object, field: str) -> None:
    refused(lambda: check.labels(mapping), field)


@given(st.integers())
def test_an_integer_passes_exactly_within_its_bounds(value: int) -> None:
    if 1 <= value <= 100:
        assert check.integer(value, "count", 1, 100) == value
    else:
        refused(lambda: check.integer(value, "count", 1, 100), "count")


@pytest.mark.parametrize("value", [True, 1.0, math.nan, math.inf, "1", None, HUGE])
def test_what_is_no_small_integer_is_refused_as_one(value: object) -> None:
    refused(lambda: check.integer(value, "count", 0, 2**63 - 1), "count")


@pytest.mark.parametrize("value", [True, math.nan, math.inf, -math.inf, 1e308, "1", None, HUGE])
def test_what_is_no_small_number_is_refused_as_one(value: object) -> None:
    refused(lambda: check.number(value, "share", 0, 1e9), "share")


@pytest.mark.parametrize("value", [0, 1, 0.5, -0.0, 1e9])
def test_a_number_passes_as_a_float(value: float) -> None:
    found = check.number(value, "share", 0, 1e9)
    assert found == value
    assert type(found) is float


def test_a_refusal_never_repeats_the_value() -> None:
    secret = "s3cret value"
    assert secret not in refused(lambda: check.name(secret, "queue"), "queue").message
    assert secret not in refused(lambda: check.labels({secret: "x"}), "labels").message


@pytest.mark.parametrize(
    ("function", "minimum", "maximum"),
    [
        (check.instant_ms, 0, 253_402_300_799_999),
        (check.duration_ms, 1, limits.DURATION_MS_MAX),
        (check.attempt, 1, 2**31 - 1),
        (check.priority, 0, 9),
    ],
)
def test_ranges_include_their_ends_and_nothing_beyond(
    function: Callable[[object, str], int], minimum: int, maximum: int
) -> None:
    assert function(minimum, "it") == minimum
    assert function(maximum, "it") == maximum
    refused(lambda: function(minimum - 1, "it"), "it")
    refused(lambda: function(maximum + 1, "it"), "it")


def test_a_duration_may_have_another_minimum() -> None:
    assert check.duration_ms(0, "delay", minimum=0) == 0
    refused(lambda: check.duration_ms(9, "lease", minimum=10), "lease")


def test_fields_have_their_usual_name_by_default() -> None:
    refused(lambda: check.attempt(0), "attempt")
    refused(lambda: check.priority(10), "priority")


@pytest.mark.parametrize(("value", "size"), [(0, 20), (1, 1), (100, 100), (101, 100), (10**9, 100)])
def test_a_page_size_is_the_one_that_is_used(value: int, size: int) -> None:
    assert check.page_size(value) == size


@pytest.mark.parametrize("value", [-1, 2**63, True, "20", 20.0])
def test_a_bad_page_size_is_refused(value: object) -> None:
    refused(lambda: check.page_size(value), "page_size")
