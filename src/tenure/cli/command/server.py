"""``tenure server``: it only starts the server and says where it is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

import click

from tenure.cli.client.invocation import DEFAULT_TARGET
from tenure.cli.parameter import (
    duration_ms,
    examples,
    log_format_option,
    option,
    schema_option,
    store_option,
)
from tenure.core.duration import duration_text
from tenure.core.limits import (
    ENQUEUES_PER_S,
    LISTS_PER_S,
    REGISTRATIONS_PER_S,
    SCHEDULER_BATCH_SIZE,
    SCHEDULER_BATCH_SIZE_MAX,
    SCHEDULER_FIRES_PER_ROUND,
    SCHEDULER_FIRES_PER_ROUND_MAX,
    SCHEDULER_INTERVAL_MS,
    SCHEDULER_INTERVAL_MS_MAX,
    SCHEDULER_INTERVAL_MS_MIN,
    SUSPECT_GRACE_MS_MAX,
    SUSPECT_GRACE_MS_MIN,
)

if TYPE_CHECKING:
    from tenure.api.log import Format
    from tenure.api.server import Server
    from tenure.api.setting import Address, ServerSettings
    from tenure.engine.settings import Settings

LISTENING: Final = "Tenure is listening:"


class _Options(TypedDict):
    """What a server is told beside its store."""

    schema: str
    http: str
    grpc: str
    is_insecure: bool
    allow_hosts: tuple[str, ...]
    tls_cert: str
    tls_key: str
    tls_client_ca: str
    served_allow: tuple[str, ...]
    served_ca: str
    served_cert: str
    served_key: str
    endpoint_allow: tuple[str, ...]
    callback_url: str
    enqueue_rate: int
    register_rate: int
    list_rate: int
    session_grace_ms: int
    scheduler_interval_ms: int
    scheduler_batch_size: int
    scheduler_fires: int
    is_pooled: bool
    log_format: Format
    log_level: str
    engine: tuple[str, ...]


def _session_grace_ms(text: str) -> int:
    grace_ms = duration_ms(text)
    if SUSPECT_GRACE_MS_MIN <= grace_ms <= SUSPECT_GRACE_MS_MAX:
        return grace_ms
    least, most = duration_text(SUSPECT_GRACE_MS_MIN), duration_text(SUSPECT_GRACE_MS_MAX)
    raise click.BadParameter(f"{text!r} is not between {least} and {most}.")


def _scheduler_interval_ms(text: str) -> int:
    """Read seconds, as the variable has them, or a duration with its unit."""
    interval_ms = duration_ms(f"{text}s" if text.replace(".", "", 1).isdigit() else text)
    if SCHEDULER_INTERVAL_MS_MIN <= interval_ms <= SCHEDULER_INTERVAL_MS_MAX:
        return interval_ms
    least = duration_text(SCHEDULER_INTERVAL_MS_MIN)
    most = duration_text(SCHEDULER_INTERVAL_MS_MAX)
    raise click.BadParameter(f"{text!r} is not between {least} and {most}.")


@click.command(
    short_help="Start a Tenure server.",
    epilog=examples(
        "tenure server --store sqlite:///tenure.db",
        "TENURE_STORE=postgresql://tenure@db/tenure tenure server --log-format json",
        "tenure server --store sqlite:///tenure.db --http 0.0.0.0:7300 --insecure",
        "tenure server --store sqlite:///tenure.db --tls-cert server.pem --tls-key server.key",
    ),
)
@store_option
@schema_option
@option(
    "--http",
    envvar="TENURE_HTTP",
    default="127.0.0.1:7300",
    metavar="HOST:PORT",
    help="Address to listen on for HTTP. Port 0 picks a free one.",
)
@option(
    "--grpc",
    envvar="TENURE_GRPC",
    default=DEFAULT_TARGET,
    metavar="HOST:PORT",
    help="Address to listen on for gRPC. Port 0 picks a free one.",
)
@option(
    "--insecure",
    "is_insecure",
    envvar="TENURE_INSECURE",
    is_flag=True,
    help="Allow an address that other machines can reach without an admin key.",
)
@option(
    "--allow-host",
    "allow_hosts",
    envvar="TENURE_ALLOW_HOST",
    multiple=True,
    metavar="NAME",
    help="A host name that clients use for this server. Repeatable. Without keys HTTP requests "
    "are answered only for its own address, localhost and these names.",
)
@option(
    "--tls-cert",
    envvar="TENURE_SERVER_TLS_CERT",
    default="",
    metavar="FILE",
    help="PEM file of the certificate and its chain. Turns TLS on. Reloaded when it changes.",
)
@option(
    "--tls-key",
    envvar="TENURE_SERVER_TLS_KEY",
    default="",
    metavar="FILE",
    help="PEM file of the private key.",
)
@option(
    "--tls-client-ca",
    envvar="TENURE_SERVER_TLS_CLIENT_CA",
    default="",
    metavar="FILE",
    help="PEM file of authorities. Only clients with a certificate of theirs are let in.",
)
@option(
    "--served-allow",
    "served_allow",
    envvar="TENURE_SERVED_ALLOW",
    multiple=True,
    metavar="CIDR|HOST",
    help="A network, an address or a host name where served workers may listen. Repeatable. "
    "Without it only at the address from which they register.",
)
@option(
    "--served-ca",
    envvar="TENURE_SERVED_CA",
    default="",
    metavar="FILE",
    help="PEM file of the authorities of served workers. Turns on TLS for calls to them.",
)
@option(
    "--served-cert",
    envvar="TENURE_SERVED_CERT",
    default="",
    metavar="FILE",
    help="PEM file of the certificate that the server shows to served workers.",
)
@option(
    "--served-key",
    envvar="TENURE_SERVED_KEY",
    default="",
    metavar="FILE",
    help="PEM file of the private key of that certificate.",
)
@option(
    "--endpoint-allow",
    "endpoint_allow",
    envvar="TENURE_ENDPOINT_ALLOW",
    multiple=True,
    metavar="CIDR|HOST",
    help="A network, an address or a host name to which tasks may be pushed. Repeatable. Without "
    "it only public addresses with https.",
)
@option(
    "--callback-url",
    envvar="TENURE_CALLBACK_URL",
    default="",
    metavar="URL",
    help="Under which URL HTTP workers reach this server. Without it endpoints are only on this "
    "machine.",
)
@option(
    "--enqueue-rate",
    envvar="TENURE_ENQUEUE_RATE",
    type=click.IntRange(0),
    default=ENQUEUES_PER_S,
    metavar="PER_SECOND",
    help="Tasks that one namespace may enqueue per second. 0 is no limit.",
)
@option(
    "--register-rate",
    envvar="TENURE_REGISTER_RATE",
    type=click.IntRange(0),
    default=REGISTRATIONS_PER_S,
    metavar="PER_SECOND",
    help="Workers that one namespace may register per second. 0 is no limit.",
)
@option(
    "--list-rate",
    envvar="TENURE_LIST_RATE",
    type=click.IntRange(0),
    default=LISTS_PER_S,
    metavar="PER_SECOND",
    help="Pages of lists that one namespace may read per second. 0 is no limit.",
)
@option(
    "--session-grace",
    "session_grace_ms",
    envvar="TENURE_SESSION_GRACE",
    type=_session_grace_ms,
    default="3s",
    metavar="DURATION",
    help="How long a worker may take to reconnect before its tasks are handed out again.",
)
@option(
    "--scheduler-interval",
    "scheduler_interval_ms",
    envvar="TENURE_SCHEDULER_INTERVAL_SECS",
    type=_scheduler_interval_ms,
    default=f"{SCHEDULER_INTERVAL_MS // 1_000}",
    metavar="SECONDS",
    help="How often schedules are looked at, beside the alarm for the next tick.",
)
@option(
    "--scheduler-batch-size",
    envvar="TENURE_SCHEDULER_BATCH_SIZE",
    type=click.IntRange(1, SCHEDULER_BATCH_SIZE_MAX),
    default=SCHEDULER_BATCH_SIZE,
    metavar="COUNT",
    help="Schedules that are looked at in one transaction.",
)
@option(
    "--scheduler-fires",
    envvar="TENURE_SCHEDULER_MAX_WORKFLOWS_PER_TICK",
    type=click.IntRange(1, SCHEDULER_FIRES_PER_ROUND_MAX),
    default=SCHEDULER_FIRES_PER_ROUND,
    metavar="COUNT",
    help="Tasks and runs that schedules start in one round of this server.",
)
@option(
    "--pooled",
    "is_pooled",
    envvar="TENURE_POOLED",
    is_flag=True,
    help="PostgreSQL is behind a pooler in transaction mode, such as PgBouncer.",
)
@log_format_option
@option(
    "--log-level",
    envvar="TENURE_LOG_LEVEL",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    help="Lowest level that is logged.",
)
@click.option(
    "--setting",
    "engine",
    multiple=True,
    hidden=True,  # For tests and measurements; what operators need has an option of its own.
    metavar="NAME=NUMBER",
)
def server(store_url: str, **options: Unpack[_Options]) -> None:
    """Start a server and run it until SIGTERM or Ctrl-C.

    A SQLite file is for one server. Any number of servers can share a PostgreSQL database. The
    schema is updated first. When it is told to stop, the server finishes what it has accepted and
    exits with code 0.
    """
    # gRPC's C core would write its own account of a port that is taken.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from tenure.api.log import configure_logging
    from tenure.api.server import run_server
    from tenure.cli.database.store_failure import failure_of

    configure_logging(options["log_format"], options["log_level"])

    def say(started: Server) -> None:
        # In JSON the event `server.started` says the same.
        if options["log_format"] == "text":
            said = greeting(
                started.http_address,
                started.grpc_address,
                store_url,
                is_tls=started.settings.tls is not None,
            )
            click.echo(said)
            if started.warning:
                click.secho(f"Warning: {started.warning}", fg="red", err=True)

    try:
        run_server(
            store_url,
            _settings(options),
            engine_settings=_engine_settings(options),
            schema=options["schema"],
            pooled=options["is_pooled"],
            on_started=say,
        )
    except Exception as error:
        failure = failure_of(error, store_url)
        if failure is None:
            raise
        raise failure from error


def _callback_url(text: str) -> str:
    from tenure.core.address import read_url

    return str(read_url(text, "callback-url")).rstrip("/") if text else ""


def _settings(options: _Options) -> ServerSettings:
    from tenure.api.guard.served_tls import served_tls
    from tenure.api.guard.tls import tls_files
    from tenure.api.setting import ServerSettings, parse_address, parse_host
    from tenure.core.address import AllowList

    return ServerSettings(
        http=parse_address(options["http"], "http"),
        grpc=parse_address(options["grpc"], "grpc"),
        is_insecure=options["is_insecure"],
        allow_hosts=tuple(map(parse_host, options["allow_hosts"])),
        enqueues_per_s=options["enqueue_rate"],
        registrations_per_s=options["register_rate"],
        lists_per_s=options["list_rate"],
        tls=tls_files(options["tls_cert"], options["tls_key"], options["tls_client_ca"]),
        endpoint_allow=AllowList.parse(options["endpoint_allow"], "endpoint-allow"),
        callback_url=_callback_url(options["callback_url"]),
        served_allow=AllowList.parse(options["served_allow"], "served-allow"),
        served_tls=served_tls(options["served_ca"], options["served_cert"], options["served_key"]),
    )


def _engine_settings(options: _Options) -> Settings:
    import msgspec

    from tenure.engine.settings import Settings

    own = [
        ("suspect_grace_ms", str(options["session_grace_ms"])),
        ("scheduler_interval_ms", str(options["scheduler_interval_ms"])),
        ("scheduler_batch_size", str(options["scheduler_batch_size"])),
        ("scheduler_fires_per_round", str(options["scheduler_fires"])),
    ]
    given = dict([*own, *(each.partition("=")[::2] for each in options["engine"])])
    unknown = given.keys() - set(Settings.__struct_fields__)
    if unknown:
        raise click.UsageError(f"--setting does not know {', '.join(sorted(unknown))}.")
    try:
        return msgspec.convert(given, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise click.UsageError(f"--setting: {error}") from error


def greeting(http: Address, grpc: Address, store_url: str, *, is_tls: bool = False) -> str:
    """Return what a server says when it is ready; its first line is also read by programs."""
    from tenure.store.location import shown

    target = "" if str(grpc) == DEFAULT_TARGET else f" --target {grpc}"
    target += " --tls" if is_tls else ""
    return "\n".join(
        (
            f"{LISTENING} http={http} grpc={grpc}",
            f"  Store:  {shown(store_url)}",
            f"  Next:   tenure tasks enqueue hello --input '{{}}'{target}",
            f"          http{'s' if is_tls else ''}://{http}/docs",
            "  Stop:   Ctrl-C",
        )
    )
