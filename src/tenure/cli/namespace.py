"""``tenure namespaces``."""

from __future__ import annotations

import click

from tenure.cli.invocation import Invocation, with_whole_server
from tenure.cli.parameter import examples


@click.group(short_help="See and create namespaces.")
def namespaces() -> None:
    """See and create namespaces, which keep the work of teams apart."""


@namespaces.command("ls", short_help="List namespaces.", epilog=examples("tenure namespaces ls"))
@with_whole_server
def list_(call: Invocation) -> None:
    """List the namespaces of the server."""
    token = ""
    names: list[str] = []
    while True:
        page, token = call.client.list_namespaces(token)
        names += page
        if not token:
            break
    if call.output.form == "json":
        call.output.write({"namespaces": [{"name": name} for name in names]})
        return
    for name in names:
        if call.output.is_table:
            call.output.say(name)
        else:
            call.output.write({"name": name})


@namespaces.command(
    short_help="Create a namespace.",
    epilog=examples("tenure namespaces create acme", "tenure namespaces create acme/staging"),
)
@click.argument("name", metavar="NAME")
@with_whole_server
def create(call: Invocation, *, name: str) -> None:
    """Create a namespace: NAME, which means NAME/default, or TENANT/WORKSPACE."""
    made = call.client.create_namespace(name)
    if call.output.is_table:
        call.output.say(f"Namespace {made} is there.")
        call.output.note(f"Use it with --namespace {name}, or TENURE_NAMESPACE={name}.")
    else:
        call.output.write({"name": made})
