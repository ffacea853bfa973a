"""Every decoder meets any bytes, and what was once good."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.core import cursor
from tenure.core.access import task_token as task_tokens
from tenure.core.access.task_token import Claims, Purpose
from tenure.core.change_hint import EventKind, Hint, hint_of, position_of, position_text, text_of
from tenure.store.table import codec
from tests.fuzz.target import EXAMPLES, KEY, NOW_MS, TARGETS, mutated

NAMES = st.from_regex(r"[A-Za-z0-9._:-]{1,20}", fullmatch=True)
CASES = 300


@pytest.mark.parametrize("name", TARGETS)
def test_a_decoder_gives_a_value_or_refuses_in_its_own_words(name: str) -> None:
    @settings(max_examples=CASES, deadline=None, database=None)
    @given(st.one_of(st.binary(max_size=200), st.text(max_size=100).map(str.encode)))
    def examine(data: bytes) -> None:
        TARGETS[name](data)

    examine()


@pytest.mark.parametrize("name", TARGETS)
def test_a_decoder_stands_what_was_good_once(name: str) -> None:
    for data in EXAMPLES[name]:
        TARGETS[name](data)
    rng = random.Random(name)
    for _ in range(CASES):
        TARGETS[name](mutated(name, rng))


@settings(deadline=None, database=None)
@given(NAMES, NAMES, st.text(st.characters(codec="utf-8"), max_size=200))
def test_a_cursor_comes_back_as_the_position_it_was_made_of(
    namespace: str, query: str, position: str
) -> None:
    text = cursor.encode(KEY, namespace=namespace, query=query, position=position)
    assert cursor.decode(KEY, text, namespace=namespace, query=query) == position


@settings(deadline=None, database=None)
@given(NAMES, NAMES, st.integers(1, 2**31 - 1), st.sampled_from(Purpose))
def test_a_token_comes_back_as_the_claims_it_was_made_of(
    namespace: str, task_id: str, attempt: int, purpose: Purpose
) -> None:
    claims = Claims(purpose, namespace, "", task_id, attempt, NOW_MS + 1)
    found = task_tokens.verify(KEY, task_tokens.sign(KEY, claims), purpose=purpose, now_ms=NOW_MS)
    assert found == claims


@settings(deadline=None, database=None)
@given(st.sampled_from(EventKind), NAMES, NAMES, st.integers(0, 2**53), NAMES)
def test_a_hint_comes_back_as_it_was_told(
    kind: EventKind, namespace: str, thing: str, version: int, queue: str
) -> None:
    queue = "" if kind is EventKind.NAMESPACE or queue == "-" else queue
    hint = Hint(kind, namespace, thing, version, "PENDING", queue)
    assert hint_of(text_of(hint)) == hint
    assert position_of(position_text(namespace, version), namespace) == version


@settings(deadline=None, database=None)
@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=50), max_size=20))
def test_names_come_back_from_a_row_as_they_were(names: list[str]) -> None:
    assert codec.names_from(codec.names_to(names)) == tuple(names)
