"""Errors for people: what happened, why, and what to do next."""

from __future__ import annotations

import json
import sys
from typing import IO, Any, Final, NamedTuple

import click

from tenure.cli.exit_code import EXIT_CODES, ExitCode
from tenure.cli.show.text import escaped


class Advice(NamedTuple):
    """What an error's code tells beyond the message of the server."""

    why: str
    hint: str


ADVICE: Final[dict[str, Advice]] = {
    "worker_inactive": Advice(
        "The worker has stopped, or was never registered.", "List the workers: tenure workers ls"
    ),
    "token_mismatch": Advice(
        "Another process uses the same worker id.",
        "Try again. If it happens again, list the workers: tenure workers ls",
    ),
    "worker_draining": Advice(
        "A draining worker finishes its tasks and gets no new ones.",
        "See how many tasks it still runs: tenure workers show ID",
    ),
    "attempt_mismatch": Advice(
        "This attempt has ended. A later one may be running.",
        "See the attempts: tenure tasks attempts ID",
    ),
    "task_already_terminal": Advice(
        "An ended task never changes.",
        "See how it ended: tenure tasks show ID. Run it again as a new task: tenure tasks retry ID",
    ),
    "task_expired": Advice(
        "The attempt timed out, or its worker was lost.",
        "See the attempts: tenure tasks attempts ID",
    ),
    "invalid_token": Advice(
        "The token is malformed, expired, or belongs to another attempt.",
        "Complete the task by its id: tenure tasks complete ID --output JSON",
    ),
    "unauthenticated": Advice(
        "The server needs a valid API key.",
        "Set TENURE_API_KEY or --api-key. An admin creates keys with tenure keys create. Without "
        "an admin key, create one in the database: tenure keys create --role admin "
        "--store URL",
    ),
    "permission_denied": Advice(
        "The role of your API key does not allow this. Or the server has no keys and does not "
        "answer for the host name that you used.",
        "Ask an admin for a key with another role: tenure keys create --role ROLE. Or allow the "
        "host name: tenure server --allow-host NAME",
    ),
    "wrong_state": Advice(
        "The current state does not allow it.",
        "See the state: tenure tasks show ID, or tenure workers show ID",
    ),
    "not_found": Advice(
        "It does not exist in this namespace, or was removed some time after its end.",
        "Check the id and --namespace. The ls commands list what exists.",
    ),
    "idempotency_conflict": Advice(
        "A task with the same key but other content exists.",
        "Use another --key, or send the same task.",
    ),
    "already_exists": Advice("The name is taken.", "Choose another name, or use the existing one."),
    "unimplemented": Advice(
        "The server does not know this call.", "Update the server. Compare versions: tenure doctor"
    ),
    "invalid_argument": Advice(
        "The server refused a value.",
        "Correct it and try again. --help shows what each option accepts.",
    ),
    "payload_too_large": Advice(
        "The payload is too large for the database.",
        "Store the data elsewhere and send a reference.",
    ),
    "rate_limited": Advice(
        "The server is over a limit. Nothing was accepted.", "Try again in a moment."
    ),
    "unsupported_media_type": Advice("The server does not accept this content type.", "Send JSON."),
    "data_damaged": Advice(
        "The stored data is damaged.",
        "Find all damage: tenure db check. Then restore a backup, or enqueue the task again.",
    ),
    "journal_mismatch": Advice(
        "The code of the workflow has changed in a way that its run cannot follow.",
        "Deploy code that fits what was recorded; the run is tried again by itself.",
    ),
    "journal_full": Advice(
        "The run has recorded as much as one journal takes.",
        "Let the workflow begin anew from time to time, with continue_as_new.",
    ),
    "out_of_order": Advice(
        "An entry of a journal came before an earlier one.",
        "Send all entries again from the expected number on.",
    ),
    "too_early": Advice(
        "A timer was reported before it fired by the time of the server.",
        "Report it again in a moment.",
    ),
    "deadline_exceeded": Advice(
        "The answer took too long. The server may or may not have done it.",
        "Check the current state, then try again.",
    ),
    "unavailable": Advice(
        "The server runs but cannot answer now: its database is away, or it is stopping.",
        "Try again in a moment. The log of the server says more.",
    ),
}


class CliError(click.ClickException):
    """A command that failed; it is shown on stderr and decides the exit code."""

    def __init__(
        self,
        what: str,
        *,
        why: str = "",
        hint: str = "",
        exit_code: ExitCode = ExitCode.FAILED,
        code: str = "",
    ) -> None:
        """Say what happened, why, and what to do next; ``code`` is that of the server."""
        super().__init__(what)
        self.why = why
        self.hint = hint
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it from instances too
        self.end = exit_code
        self.code = code
        self.fields: dict[str, object] = {}
        self.is_json = False

    @property
    def is_transient(self) -> bool:
        """Tell whether the same call may succeed in a moment."""
        return self.end is ExitCode.UNREACHABLE

    def show(self, file: IO[Any] | None = None) -> None:
        """Write it for people, or as one line of JSON when the output is JSON."""
        file = file or sys.stderr
        if self.is_json:
            body = {
                "error": self.code or self.end.name.lower(),
                "message": self.message,
                "why": self.why,
                "hint": self.hint,
                **self.fields,
            }
            click.echo(json.dumps({key: value for key, value in body.items() if value}), file=file)
            return
        click.secho("Error: ", fg="red", bold=True, nl=False, file=file)
        click.echo(escaped(self.message), file=file)
        for label, text in (("Why", self.why), ("Next", self.hint)):
            if text:
                click.echo(f"  {label}: {escaped(text)}", file=file)


def refused(code: str, message: str, fields: dict[str, object]) -> CliError:
    """Return the error for a refusal of the server, by its code."""
    advice = ADVICE.get(code, Advice("", ""))
    error = CliError(
        message,
        why=advice.why,
        hint=advice.hint,
        exit_code=EXIT_CODES.get(code, ExitCode.FAILED),
        code=code,
    )
    error.fields = fields
    return error
