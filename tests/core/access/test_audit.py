"""The audit log: its records and the filters of its list."""

from __future__ import annotations

import pytest

from tenure.core.access.audit import ALL_AUDIT, AuditAction, AuditFilter, AuditRecord
from tenure.errors import InvalidArgument

KEY_ID = "aaaaaaaaaaaaaaaa"


def record(*namespaces: str, detail: str = "") -> AuditRecord:
    return AuditRecord(
        id="1",
        at_ms=0,
        actor="",
        action=AuditAction.KEY_CREATE,
        target=KEY_ID,
        namespaces=namespaces,
        detail=detail,
    )


@pytest.mark.parametrize(
    ("namespaces", "namespace"), [((), ""), (("acme/a",), "acme/a"), (("acme/a", "acme/b"), "")]
)
def test_a_record_has_a_namespace_if_it_concerns_just_one(
    namespaces: tuple[str, ...], namespace: str
) -> None:
    assert record(*namespaces).namespace == namespace


def test_the_detail_of_a_record_is_short() -> None:
    with pytest.raises(AssertionError):
        record(detail="x" * 1_025)


def test_a_filter_without_fields_lets_all_pass() -> None:
    assert ALL_AUDIT.checked() == AuditFilter()


def test_a_filter_gets_its_namespace_in_full() -> None:
    chosen = AuditFilter(namespace="acme", action="key.create", actor=KEY_ID)
    assert chosen.checked() == AuditFilter(
        namespace="acme/default", action="key.create", actor=KEY_ID
    )


@pytest.mark.parametrize(
    ("chosen", "field"),
    [
        (AuditFilter(namespace="a b"), "namespace"),
        (AuditFilter(action="a b"), "action"),
        (AuditFilter(actor="nobody"), "actor"),
    ],
)
def test_a_filter_names_its_bad_field(chosen: AuditFilter, field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        chosen.checked()
    assert caught.value.fields == {"field": field}
