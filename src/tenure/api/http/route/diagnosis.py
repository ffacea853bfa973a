"""The operation that reports problems of a server, its store and its workers."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, UnsetType, structs

import tenure
from tenure.api.guard.access import check_namespace
from tenure.api.guard.scope import scope
from tenure.api.http.operation import Answer, Operation, OperationCall
from tenure.api.http.parameter import NoQuery
from tenure.api.http.view import Instant, View, instant, instant_or_unset, values
from tenure.core.access.permission import Action
from tenure.core.diagnosis.finding import Level
from tenure.core.limits import INSTANT_MS_MAX
from tenure.engine.read.diagnosis import Question, diagnose


class DiagnosisQuery(NoQuery, frozen=True):
    """The scope of a diagnosis."""

    namespace: Annotated[
        str, Meta(description="Only this namespace; default: all that the key may see")
    ] = ""
    client_now_ms: Annotated[
        int, Meta(description="Your clock, to compare; 0 means none", ge=0, le=INSTANT_MS_MAX)
    ] = 0


class FindingView(View, frozen=True):
    """One check: a stable name, its level, what was found, and what to do."""

    check: Annotated[str, Meta(description="For example clock_skew, migrations, stuck_leases")]
    level: Annotated[str, values(Level)]
    message: str
    advice: str
    evidence: dict[str, str]


class DiagnosisView(View, frozen=True):
    """The findings, the worst first. Without storeNow the store did not answer."""

    server_id: str
    server_version: str
    server_now: Instant
    store_now: Instant | UnsetType
    findings: list[FindingView]


async def get_diagnosis(call: OperationCall[DiagnosisQuery, None]) -> Answer:
    """Check everything, and report what is wrong."""
    asked = call.query
    namespace = scope(asked.namespace) if asked.namespace else ""
    if namespace:
        check_namespace(call.principal, namespace)
    question = Question(
        version=tenure.__version__,
        namespace=namespace,
        namespaces=call.principal.namespaces,
        client_now_ms=asked.client_now_ms,
    )
    found = await diagnose(call.engine, question)
    shown = DiagnosisView(
        server_id=found.server_id,
        server_version=found.server_version,
        server_now=instant(found.server_now_ms),
        store_now=instant_or_unset(found.store_now_ms),
        findings=[FindingView(**structs.asdict(each)) for each in found.findings],
    )
    return Answer(shown)


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/v1/diagnosis",
        name="getDiagnosis",
        group="Server",
        summary="Problems of this server, its store and its workers, and what to do.",
        handle=get_diagnosis,
        action=Action.ADMIN,
        is_list=True,
        query=DiagnosisQuery,
        answer=DiagnosisView,
        errors=("not_found",),
    ),
)
