"""What a server says of itself, and what its version says beside ours."""

from __future__ import annotations

import tenure
from tenure.cli.show.text import instant_text
from tenure.cli.show.view import Shown
from tenure.v1 import admin_service_pb2


class ShownFinding(Shown, frozen=True):
    """One line of the doctor."""

    check: str
    level: str
    message: str
    advice: str
    evidence: dict[str, str]


class ShownDiagnosis(Shown, frozen=True):
    """Everything that was found, the worst first."""

    server_id: str
    server_version: str
    client_version: str
    server_now: str
    findings: list[ShownFinding]
    store_now: str | None = None


def diagnosis(answer: admin_service_pb2.DiagnoseResponse) -> ShownDiagnosis:
    """Return what the server found, and what only this side can see."""
    findings = [
        ShownFinding(
            each.check, each.level, each.message, each.advice, dict(sorted(each.evidence.items()))
        )
        for each in answer.findings
    ]
    findings.append(_versions(answer.server_version, tenure.__version__))
    order = ("problem", "warning", "ok")
    findings.sort(key=lambda each: order.index(each.level))
    return ShownDiagnosis(
        answer.server_id,
        answer.server_version,
        tenure.__version__,
        instant_text(answer.server_now_ms),
        findings,
        instant_text(answer.store_now_ms) if answer.store_now_ms else None,
    )


def _versions(server: str, client: str) -> ShownFinding:
    evidence = {"clientVersion": client, "serverVersion": server}
    if server.split(".")[:2] == client.split(".")[:2]:
        message = "Command line and server have the same version."
        return ShownFinding("client_version", "ok", message, "", evidence)
    message = f"The command line has version {client}, the server {server}."
    advice = "They work together during an upgrade. Upgrade the older one."
    return ShownFinding("client_version", "warning", message, advice, evidence)
