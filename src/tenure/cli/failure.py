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
        "The worker has ended or was never registered here.", "See who is there: tenure workers ls"
    ),
    "token_mismatch": Advice(
        "Another process speaks for the same worker.",
        "Try again; if it stays, look at the worker: tenure workers ls",
    ),
    "worker_draining": Advice(
        "A draining worker finishes what it holds and gets nothing new.",
        "See what it still holds: tenure workers show ID",
    ),
    "attempt_mismatch": Advice(
        "The attempt that was named has ended; another one may run.",
        "See the attempts: tenure tasks attempts ID",
    ),
    "task_already_terminal": Advice(
        "A task that has ended never changes.",
        "See how it ended: tenure tasks show ID. Run it again as a new task: tenure tasks retry ID",
    ),
    "task_expired": Advice(
        "The attempt timed out or its worker was lost.",
        "See the attempts: tenure tasks attempts ID",
    ),
    "invalid_token": Advice(
        "The token is malformed, expired, or belongs to another attempt.",
        "Complete the task by its id: tenure tasks complete ID --output JSON",
    ),
    "unauthenticated": Advice(
        "The server wants an API key that it knows.",
        "Give it with --api-key or TENURE_API_KEY; an admin makes one with tenure keys create. If "
        "nobody has an admin key, make one in the store itself: tenure keys create --role admin "
        "--store URL",
    ),
    "permission_denied": Advice(
        "The role of your API key does not include this, or the server has no keys and does not "
        "answer for the name that you call it by.",
        "Ask an admin for a key with another role: tenure keys create --role ROLE. Or start the "
        "server with that name: tenure server --allow-host NAME",
    ),
    "wrong_state": Advice(
        "The present state does not allow it.",
        "Look at the state first: tenure tasks show ID, or tenure workers show ID",
    ),
    "not_found": Advice(
        "It does not exist in this namespace, or it ended so long ago that it was removed.",
        "Check the id and --namespace; the ls commands show what is there.",
    ),
    "idempotency_conflict": Advice(
        "A task with the same key and other content exists.",
        "Use another --key, or send exactly the same task.",
    ),
    "already_exists": Advice("The name is taken.", "Choose another name, or use what is there."),
    "unimplemented": Advice(
        "This server does not offer the call.", "Update the server; compare: tenure version"
    ),
    "invalid_argument": Advice(
        "The server refused a value.",
        "Correct it and try again; --help shows the form of each option.",
    ),
    "payload_too_large": Advice(
        "A database row is no place for files.",
        "Store the data elsewhere and send a reference to it.",
    ),
    "rate_limited": Advice(
        "The server protects itself; nothing was accepted.", "Try again in a moment."
    ),
    "unsupported_media_type": Advice(
        "The server does not read this kind of content.", "Send JSON."
    ),
    "data_damaged": Advice(
        "What was stored has changed on its disk or on the way there.",
        "See what else is damaged: tenure db check; then restore a backup, or enqueue anew.",
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
        "The answer took too long; whether the server acted is not known.",
        "Look at the present state, then try again.",
    ),
    "unavailable": Advice(
        "The server is there but cannot answer now: its store is away, or it is stopping.",
        "Try again in a moment; its log says more.",
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
