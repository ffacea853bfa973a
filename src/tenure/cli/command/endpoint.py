"""``tenure endpoints``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar

import click
from typing_extensions import Unpack

from tenure.cli.client.invocation import Invocation, with_server
from tenure.cli.exit_code import ExitCode
from tenure.cli.help import CommandGroup
from tenure.cli.parameter import PageOptions, duration_ms, examples, page_options
from tenure.core.duration import duration_text

if TYPE_CHECKING:
    from tenure.cli.client.endpoint_client import EndpointChoice
    from tenure.cli.show.endpoint_view import ShownEndpoint, ShownNewEndpoint
    from tenure.cli.show.table import Column

F = TypeVar("F", bound=Callable[..., Any])
_NAME: Final = click.argument("name", metavar="NAME")


class _Options(TypedDict):
    """What may be said about an endpoint."""

    url: str | None
    types: tuple[str, ...]
    headers: tuple[str, ...]
    concurrency: int | None
    timeout_ms: int | None
    delivery_timeout_ms: int | None
    heartbeat_interval_ms: int | None
    heartbeat_timeout_ms: int | None
    token_ttl_ms: int | None


def _duration(name: str, default: str, help_text: str) -> Callable[[F], F]:
    return click.option(
        f"--{name}",
        f"{name.replace('-', '_')}_ms",
        metavar="DURATION",
        type=duration_ms,
        help=f"{help_text} [default: {default}]",
    )


_OPTIONS: Final = (
    click.option("--type", "types", multiple=True, help="A type that it takes. Repeatable."),
    click.option(
        "--header",
        "headers",
        multiple=True,
        metavar="NAME=VALUE",
        help="A header that is sent along. Repeatable. Values are never shown.",
    ),
    click.option(
        "--concurrency",
        type=click.IntRange(1),
        help="Attempts that it has at a time. [default: 10]",
    ),
    _duration("timeout", "10s", "How long a POST may take."),
    _duration("delivery-timeout", "90s", "From the acceptance of a task to its start."),
    _duration("heartbeat-interval", "30s", "How often a process sends heartbeats."),
    _duration("heartbeat-timeout", "90s", "How long a process may be silent."),
    _duration("token-ttl", "1h", "How long a task token lives."),
)


def _options(command: F) -> F:
    for each in reversed(_OPTIONS):
        command = each(command)
    return command


@click.group(cls=CommandGroup, short_help="Push tasks to HTTP workers.")
def endpoints() -> None:
    """Create, list, change and test endpoints: URLs that tasks of a queue are pushed to."""


def _choice(options: _Options) -> EndpointChoice:
    headers = {}
    for each in options["headers"]:
        name, equals, value = each.partition("=")
        if not equals:
            message = f"{name!r} is not NAME=VALUE."
            raise click.BadParameter(message, param_hint="--header")
        headers[name] = value
    return {**options, "headers": headers}


@endpoints.command(
    short_help="Create an endpoint and print its secret.",
    epilog=examples(
        "tenure endpoints create mail --queue default --type mail --url https://mail.example/tasks"
    ),
)
@_NAME
@click.option("--queue", required=True, help="The queue whose tasks it gets. It never changes.")
@click.option("--url", required=True, help="Where tasks are pushed to.")
@_options
@with_server
def create(call: Invocation, *, name: str, queue: str, **options: Unpack[_Options]) -> None:
    """Create an endpoint. Its secret signs what is sent, and is never shown again."""
    made = call.client.endpoints.create_endpoint(name, queue, _choice(options))
    _show_secret(call, made)


def _show_secret(call: Invocation, made: ShownNewEndpoint) -> None:
    if not call.output.is_table:
        call.output.write(made)
        return
    call.output.say(made.secret)
    call.output.note(f"This is the secret of endpoint {made.endpoint.name}.")
    call.output.note("Save it now: it is never shown again.")


def _columns() -> Sequence[Column[ShownEndpoint]]:
    from tenure.cli.show.table import Column

    return (
        Column("NAME", lambda each: each.name, is_text=True),
        Column("STATE", lambda each: each.state),
        Column("QUEUE", lambda each: each.queue, rank=2, is_text=True),
        Column("TYPES", lambda each: ", ".join(each.types), rank=4, is_text=True),
        Column("URL", lambda each: each.url, rank=1, is_text=True),
        Column("FAILURES", lambda each: each.failure_count, rank=3),
    )


@endpoints.command("ls", short_help="List endpoints.", epilog=examples("tenure endpoints ls"))
@page_options
@with_server
def list_(call: Invocation, **page: Unpack[PageOptions]) -> None:
    """List endpoints by name.

    STATE is HELD while nothing is sent because deliveries failed or the endpoint is busy, and GONE
    if it has answered that it is no more.
    """
    from tenure.cli.show import listing

    found = listing.Listing(
        "endpoints", "tenure endpoints ls", call.client.endpoints.list_endpoints
    )
    listing.show(call.output, found, page, _columns)


@endpoints.command(short_help="Show one endpoint.", epilog=examples("tenure endpoints show mail"))
@_NAME
@with_server
def show(call: Invocation, *, name: str) -> None:
    """Show an endpoint: its settings, what it holds, and its last failed delivery."""
    _show(call, call.client.endpoints.get_endpoint(name))


def _show(call: Invocation, endpoint: ShownEndpoint) -> None:
    if call.output.is_table:
        call.output.facts(_facts(endpoint))
    else:
        call.output.write(endpoint)


def _facts(endpoint: ShownEndpoint) -> Iterator[tuple[str, object]]:
    yield "endpoint", endpoint.name
    yield "state", endpoint.state
    yield "held until", endpoint.held_until
    yield "url", endpoint.url
    yield "queue", endpoint.queue
    yield "types", ", ".join(endpoint.types)
    yield "headers", ", ".join(endpoint.headers) or "none"
    yield "concurrency", endpoint.concurrency
    yield "timeout", duration_text(endpoint.timeout_ms)
    yield "delivery timeout", duration_text(endpoint.delivery_timeout_ms)
    interval, timeout = endpoint.heartbeat_interval_ms, endpoint.heartbeat_timeout_ms
    yield "heartbeat", f"each {duration_text(interval)}, timeout {duration_text(timeout)}"
    yield "token ttl", duration_text(endpoint.token_ttl_ms)
    yield "running", endpoint.held_count
    yield "failures in a row", endpoint.failure_count
    yield "last error", endpoint.last_error
    yield "last error at", endpoint.last_error_at
    yield "driven by", endpoint.server_id or "no server yet"
    yield "worker id", endpoint.worker_id


@endpoints.command(
    "set",
    short_help="Change an endpoint.",
    epilog=examples("tenure endpoints set mail --concurrency 20 --timeout 30s"),
)
@_NAME
@click.option("--url", help="Where tasks are pushed to.")
@_options
@with_server
def set_(call: Invocation, *, name: str, **options: Unpack[_Options]) -> None:
    """Change an endpoint. What is not given stays; types and headers are replaced as a whole."""
    _show(call, call.client.endpoints.set_endpoint(name, _choice(options)))


@endpoints.command(
    short_help="Push nothing more to an endpoint.", epilog=examples("tenure endpoints pause mail")
)
@_NAME
@with_server
def pause(call: Invocation, *, name: str) -> None:
    """Push nothing more to an endpoint. What it works on continues."""
    _show(call, call.client.endpoints.pause_endpoint(name, is_paused=True))


@endpoints.command(
    short_help="Push tasks to a paused endpoint again.",
    epilog=examples("tenure endpoints resume mail"),
)
@_NAME
@with_server
def resume(call: Invocation, *, name: str) -> None:
    """Push tasks to a paused endpoint again, or to one that failed too often, at once."""
    _show(call, call.client.endpoints.pause_endpoint(name, is_paused=False))


@endpoints.command(
    short_help="Send a signed message without a task.",
    epilog=examples("tenure endpoints test mail"),
)
@_NAME
@with_server
def test(call: Invocation, *, name: str) -> None:
    """Send an endpoint a signed message without a task, and show what became of it."""
    found = call.client.endpoints.test_endpoint(name)
    if call.output.is_table:
        call.output.say(f"{found.verdict} after {found.took_ms} ms")
        if found.error:
            call.output.note(found.error)
    else:
        call.output.write(found)
    if found.verdict != "accepted":
        raise click.exceptions.Exit(ExitCode.FAILED)


@endpoints.command(
    "rotate-secret",
    short_help="Make a new secret.",
    epilog=examples("tenure endpoints rotate-secret mail"),
)
@_NAME
@with_server
def rotate_secret(call: Invocation, *, name: str) -> None:
    """Make a new secret and print it. For a day the old one signs too."""
    _show_secret(call, call.client.endpoints.rotate_secret(name))


@endpoints.command(short_help="Delete an endpoint.", epilog=examples("tenure endpoints rm mail"))
@_NAME
@with_server
def rm(call: Invocation, *, name: str) -> None:
    """Delete an endpoint. It gets nothing more, and is gone when it holds nothing."""
    _show(call, call.client.endpoints.delete_endpoint(name))
