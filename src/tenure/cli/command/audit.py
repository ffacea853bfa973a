"""``tenure audit``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from tenure.cli.client.invocation import Invocation, with_whole_server
from tenure.cli.help import HelpCommand
from tenure.cli.parameter import PageOptions, examples, page_options

if TYPE_CHECKING:
    from tenure.cli.show.access_view import ShownAudit
    from tenure.cli.show.table import Column


class _Filter(TypedDict):
    """Which records are wanted; what is empty lets all pass."""

    namespace: str
    action: str
    actor: str


class _Options(_Filter, PageOptions):
    """Which part of them."""


@click.command(
    cls=HelpCommand,
    short_help="List administrative actions.",
    epilog=examples("tenure audit", "tenure audit --action key.create -o json"),
)
@click.option("--namespace", default="", metavar="NAME", help="Only actions in this namespace.")
@click.option("--action", default="", help="Only this action, such as key.create or worker.evict.")
@click.option("--actor", default="", metavar="KEY-ID", help="Only actions of this API key.")
@page_options
@with_whole_server
def audit(call: Invocation, **options: Unpack[_Options]) -> None:
    """List administrative actions, newest first. Actions of the last 90 days are kept."""
    from tenure.cli.show import listing

    where = (options["namespace"], options["action"], options["actor"])

    def read(page_token: str, limit: int) -> tuple[list[ShownAudit], str]:
        return call.client.access.list_audit(where, page_token, limit)

    listing.show(call.output, listing.Listing("records", "tenure audit", read), options, _columns)


def _columns() -> Sequence[Column[ShownAudit]]:
    from tenure.cli.show.table import Column

    return (
        Column("AT", lambda record: record.at),
        Column("ACTION", lambda record: record.action),
        Column("TARGET", lambda record: record.target, rank=1, is_text=True),
        Column("ACTOR", lambda record: record.actor, rank=2),
        Column("NAMESPACE", lambda record: record.namespace, rank=3, is_text=True),
        Column("DETAIL", lambda record: record.detail, rank=4, is_text=True),
    )
