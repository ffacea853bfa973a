"""``tenure namespaces``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from tenure.cli import suggestion
from tenure.cli.client.invocation import Invocation, with_whole_server
from tenure.cli.help import CommandGroup
from tenure.cli.parameter import PageOptions, examples

if TYPE_CHECKING:
    from tenure.cli.show.access_view import ShownNamespace
    from tenure.cli.show.table import Column

_NAME: Final = click.argument("name", metavar="NAME", shell_complete=suggestion.namespaces)


@click.group(cls=CommandGroup, short_help="List, create and disable namespaces.")
def namespaces() -> None:
    """List, create and disable namespaces. Each has its own tasks, workers and queues."""


def _columns() -> Sequence[Column[ShownNamespace]]:
    from tenure.cli.show.table import Column

    return (
        Column("NAMESPACE", lambda namespace: namespace.name, is_text=True),
        Column("STATE", lambda namespace: namespace.state),
        Column("CREATED", lambda namespace: namespace.created_at, rank=1),
    )


@namespaces.command("ls", short_help="List namespaces.", epilog=examples("tenure namespaces ls"))
@with_whole_server
def list_(call: Invocation) -> None:
    """List the namespaces that your key may read."""
    from tenure.cli.show import listing

    found = listing.Listing(
        "namespaces", "tenure namespaces ls", call.client.access.list_namespaces
    )
    everything: PageOptions = {"limit": 0, "page_token": "", "is_all": True}
    listing.show(call.output, found, everything, _columns)


@namespaces.command(
    short_help="Show one namespace.", epilog=examples("tenure namespaces show acme")
)
@_NAME
@with_whole_server
def show(call: Invocation, *, name: str) -> None:
    """Show a namespace. NAME is TENANT/WORKSPACE; acme is short for acme/default."""
    found = call.client.access.get_namespace(name)
    if call.output.is_table:
        call.output.facts(
            (("name", found.name), ("state", found.state), ("created", found.created_at))
        )
    else:
        call.output.write(found)


@namespaces.command(
    short_help="Create a namespace.",
    epilog=examples("tenure namespaces create acme", "tenure namespaces create acme/staging"),
)
@_NAME
@with_whole_server
def create(call: Invocation, *, name: str) -> None:
    """Create a namespace. NAME is TENANT/WORKSPACE; acme is short for acme/default."""
    made = call.client.access.create_namespace(name)
    if call.output.is_table:
        call.output.say(f"Namespace {made} is ready.")
        call.output.note(f"Use it with --namespace {name}, or TENURE_NAMESPACE={name}.")
    else:
        call.output.write({"name": made})


@namespaces.command(
    short_help="Stop all work in a namespace.", epilog=examples("tenure namespaces disable acme")
)
@_NAME
@with_whole_server
def disable(call: Invocation, *, name: str) -> None:
    """Disable a namespace: it accepts no new tasks and no workers.

    Running tasks may finish, and everything can still be read.
    """
    _set(call, name, is_disabled=True)


@namespaces.command(
    short_help="Enable a disabled namespace.", epilog=examples("tenure namespaces enable acme")
)
@_NAME
@with_whole_server
def enable(call: Invocation, *, name: str) -> None:
    """Enable a disabled namespace: its tasks are handed out again."""
    _set(call, name, is_disabled=False)


def _set(call: Invocation, name: str, *, is_disabled: bool) -> None:
    changed = call.client.access.set_namespace(name, is_disabled=is_disabled)
    if call.output.is_table:
        call.output.say(f"Namespace {changed.name} is {changed.state.lower()}.")
    else:
        call.output.write(changed)
