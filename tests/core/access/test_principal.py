"""Principals: what the holder of a key may do, and where."""

from __future__ import annotations

import pytest

from tenure.core.access.api_key import ApiKey, Role
from tenure.core.access.permission import Action
from tenure.core.access.principal import Principal

SCOPED = Principal("k", "ci", Role.ADMIN, ("acme/a", "acme/b"))
WHOLE = Principal("k", "ci", Role.ADMIN)


def test_who_calls_an_open_server_may_do_everything_everywhere() -> None:
    everybody = Principal.open()
    assert everybody.key_id == ""
    assert all(everybody.may(action) for action in Action)
    assert everybody.sees("acme/a")
    assert not everybody.is_scoped


def test_the_holder_of_a_key_is_what_its_key_says() -> None:
    key = ApiKey(
        id="k",
        name="ci",
        role=Role.ADMIN,
        secret_digest=bytes(32),
        created_at_ms=0,
        namespaces=("acme/a", "acme/b"),
    )
    assert Principal.of(key) == SCOPED


def test_a_role_bounds_what_its_holder_may_do() -> None:
    viewer = Principal("k", "v", Role.VIEWER)
    assert viewer.may(Action.READ)
    assert not viewer.may(Action.SUBMIT)


@pytest.mark.parametrize(("namespace", "is_seen"), [("acme/a", True), ("acme/c", False)])
def test_a_scoped_principal_sees_its_own_namespaces_alone(namespace: str, *, is_seen: bool) -> None:
    assert SCOPED.is_scoped
    assert SCOPED.sees(namespace) is is_seen
    assert WHOLE.sees(namespace)


@pytest.mark.parametrize(
    ("namespaces", "is_covered"),
    [
        (("acme/a",), True),
        (("acme/a", "acme/b"), True),
        (("acme/a", "acme/c"), False),
        (("acme/c",), False),
        ((), False),
    ],
)
def test_a_scoped_principal_administers_the_keys_that_are_within_its_own(
    namespaces: tuple[str, ...], *, is_covered: bool
) -> None:
    assert SCOPED.covers(namespaces) is is_covered
    assert WHOLE.covers(namespaces)
