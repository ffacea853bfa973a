"""The operation on the audit log."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import UNSET, Meta, UnsetType

from tenure.api.guard.access import check_namespace
from tenure.api.guard.scope import scope
from tenure.api.http import view
from tenure.api.http.operation import Answer, Operation, OperationCall
from tenure.api.http.parameter import PageQuery
from tenure.api.paging import requested_page
from tenure.core.access.audit import AuditFilter, AuditRecord
from tenure.core.access.permission import Action
from tenure.engine.read import access as access_read


class AuditQuery(PageQuery, frozen=True):
    """Filter for records."""

    namespace: Annotated[str, Meta(description="Only records of this namespace")] = ""
    action: Annotated[str, Meta(description="For example key.create or worker.evict")] = ""
    actor: Annotated[str, Meta(description="Only actions of this key")] = ""


class AuditRecordView(view.View, frozen=True):
    """One administrative action; without an actor the server was open."""

    audit_id: str
    at: view.Instant
    action: str
    target: str
    namespaces: list[str]
    actor: str | UnsetType = UNSET
    detail: str | UnsetType = UNSET


class AuditListView(view.View, frozen=True):
    """A page of the audit log, newest first."""

    records: list[AuditRecordView]
    next_page_token: str | UnsetType = UNSET


def _shown(record: AuditRecord) -> AuditRecordView:
    return AuditRecordView(
        audit_id=record.id,
        at=view.instant(record.at_ms),
        action=record.action,
        target=record.target,
        actor=record.actor or UNSET,
        namespaces=list(record.namespaces),
        detail=record.detail or UNSET,
    )


async def list_audit(call: OperationCall[AuditQuery, None]) -> Answer:
    """Show a page of the audit log."""
    asked = call.query
    namespace = scope(asked.namespace) if asked.namespace else ""
    if namespace:
        check_namespace(call.principal, namespace)
    page = await access_read.list_audit(
        call.engine.store,
        page=requested_page(call.engine, asked),
        where=AuditFilter(namespace=namespace, action=asked.action, actor=asked.actor),
        namespaces=call.principal.namespaces,
    )
    records = [_shown(each) for each in page.items]
    return Answer(AuditListView(records=records, **view.page_fields(page)))


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/v1/audit",
        name="listAudit",
        group="Audit",
        summary="List administrative actions, newest first; they are kept for 90 days.",
        handle=list_audit,
        is_list=True,
        action=Action.ADMIN,
        query=AuditQuery,
        answer=AuditListView,
        errors=("not_found",),
        example="?action=key.create",
    ),
)
