"""``tenure keys``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

import click

from tenure.cli import suggestion
from tenure.cli.client.invocation import Invocation, with_whole_server
from tenure.cli.failure import CliError
from tenure.cli.help import CommandGroup
from tenure.cli.parameter import PageOptions, duration_ms, examples, page_options, schema_option

if TYPE_CHECKING:
    from tenure.cli.client.access_client import KeyChoice
    from tenure.cli.show.access_view import ShownKey, ShownNewKey
    from tenure.cli.show.table import Column

_ROLES: Final = ("admin", "client", "worker", "viewer")
_EVERYWHERE: Final = "all"
# By the field that was refused. Every role is known, so only the first key can have a wrong one.
_ADVICE: Final = {
    "role": "Create the admin key first:",
    "namespaces": "Change --namespace. The first key is created without it:",
}
_KEY_ID: Final = click.argument("key_id", metavar="KEY-ID", shell_complete=suggestion.key_ids)


class _CreateOptions(TypedDict):
    """What a new key is for."""

    role: str
    name: str
    namespaces: tuple[str, ...]
    expires_in_ms: int | None


@click.group(cls=CommandGroup, short_help="Create, list and revoke API keys.")
def keys() -> None:
    """Create, list and revoke API keys.

    A server without keys is open to everybody. Once there is a key, every call needs one. The first
    key must be an admin key for all namespaces. An admin may do everything, a client enqueues and
    changes tasks, a worker runs tasks, and a viewer only reads.
    """


@keys.command(
    short_help="Create an API key and print it.",
    epilog=examples(
        "(umask 077; tenure keys create --role admin --store sqlite:///tenure.db > admin.key)",
        "tenure keys create --role worker --name mail --namespace acme --expires 90d",
        "tenure keys create --role client --name shop -o json",
    ),
)
@click.option("--role", type=click.Choice(_ROLES), required=True, help="What the key may do.")
@click.option("--name", default="", help="A name for lists. [default: the role]")
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    metavar="NAME",
    help="A namespace that the key may use. Repeatable. [default: all]",
)
@click.option(
    "--expires",
    "expires_in_ms",
    metavar="DURATION",
    type=duration_ms,
    help="When the key expires, such as 90d. [default: never]",
)
@click.option(
    "--store",
    "store_url",
    metavar="URL",
    help="Create the key in this database, without a server. Use it for the first key.",
)
@schema_option
@with_whole_server
def create(
    call: Invocation, *, store_url: str | None, schema: str, **options: Unpack[_CreateOptions]
) -> None:
    """Create an API key and print it to stdout. It is never shown again."""
    choice: KeyChoice = {
        "role": options["role"],
        "name": options["name"] or options["role"],
        "namespaces": options["namespaces"],
        "expires_in_ms": options["expires_in_ms"] or 0,
    }
    made = _made(call, choice, store_url, schema)
    if not call.output.is_table:
        call.output.write(made)
        return
    call.output.say(made.key)
    call.output.note(f"This is the {made.role} key {made.key_id} for {_places(made)}.")
    call.output.note("Save it now: it is not stored and never shown again.")
    call.output.note("Send it with TENURE_API_KEY, or as Authorization: Bearer.")
    if store_url is None and made.created_by is None:
        call.output.note(
            "This is the first key of the server. From now on every call needs a key: workers and "
            "clients too. Create their keys with this one."
        )


def _made(call: Invocation, choice: KeyChoice, store_url: str | None, schema: str) -> ShownNewKey:
    try:
        if store_url is None:
            return call.client.access.create_key(choice)
        from tenure.cli.database import first_key

        return first_key.create(store_url, schema, choice)
    except CliError as error:
        advice = _ADVICE.get(str(error.fields.get("field")))
        if advice is not None:
            place = "" if store_url is None else " --store URL"
            error.hint = f"{advice} tenure keys create --role admin{place}"
        raise


def _places(key: ShownKey) -> str:
    return ", ".join(key.namespaces) or "all namespaces"


def _columns() -> Sequence[Column[ShownKey]]:
    from tenure.cli.show.table import Column

    return (
        Column("KEY ID", lambda key: key.key_id),
        Column("NAME", lambda key: key.name, rank=1, is_text=True),
        Column("ROLE", lambda key: key.role, rank=2),
        Column("STATE", lambda key: key.state),
        Column(
            "NAMESPACES", lambda key: ", ".join(key.namespaces) or _EVERYWHERE, rank=3, is_text=True
        ),
        Column("EXPIRES", lambda key: key.expires_at, rank=5),
        Column("LAST USED", lambda key: key.last_used_at, rank=4),
    )


@keys.command(
    "ls", short_help="List API keys.", epilog=examples("tenure keys ls", "tenure keys ls -o json")
)
@page_options
@with_whole_server
def list_(call: Invocation, **options: Unpack[PageOptions]) -> None:
    """List the keys that you may administer, newest first, with revoked and expired ones."""
    from tenure.cli.show import listing

    found = listing.Listing("keys", "tenure keys ls", call.client.access.list_keys)
    listing.show(call.output, found, options, _columns)


@keys.command(short_help="Show one API key.", epilog=examples("tenure keys show abcdefghij234567"))
@_KEY_ID
@with_whole_server
def show(call: Invocation, *, key_id: str) -> None:
    """Show a key: its role and namespaces, when it expires, and when it was last used."""
    key = call.client.access.get_key(key_id)
    if call.output.is_table:
        call.output.facts(_facts(key))
    else:
        call.output.write(key)


def _facts(key: ShownKey) -> Iterator[tuple[str, object]]:
    yield "key id", key.key_id
    yield "name", key.name
    yield "role", key.role
    yield "state", key.state
    yield "namespaces", ", ".join(key.namespaces) or _EVERYWHERE
    yield "created", key.created_at
    yield "created by", key.created_by
    yield "expires", key.expires_at or "never"
    yield "revoked", key.revoked_at
    yield "last used", key.last_used_at or "never"


@keys.command(
    short_help="Revoke an API key.", epilog=examples("tenure keys revoke abcdefghij234567")
)
@_KEY_ID
@with_whole_server
def revoke(call: Invocation, *, key_id: str) -> None:
    """Revoke a key. Calls with it are refused from now on, and its open streams end."""
    key = call.client.access.revoke_key(key_id)
    if call.output.is_table:
        call.output.say(f"Key {key.key_id} ({key.name}) was revoked at {key.revoked_at}.")
    else:
        call.output.write(key)


@keys.command(
    "rotate-token-key",
    short_help="Make a new key that signs task tokens.",
    epilog=examples("tenure keys rotate-token-key"),
)
@with_whole_server
def rotate_token_key(call: Invocation) -> None:
    """Make a new key that signs task tokens, as for the endpoints of HTTP workers.

    Every server accepts it at once and signs with it ten seconds later. Tokens of the old key count
    until they expire, so no running task is disturbed.
    """
    made = call.client.access.rotate_token_key()
    if call.output.is_table:
        call.output.say(f"Servers sign task tokens with key {made.number} from {made.signs_from}.")
    else:
        call.output.write(made)
