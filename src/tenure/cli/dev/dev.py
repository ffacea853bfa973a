"""``tenure dev``: a server and a worker in one command, with reload, for development."""

from __future__ import annotations

import contextlib
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

import click

from tenure.cli import suggestion
from tenure.cli.client.invocation import DEFAULT_NAMESPACE, DEFAULT_TARGET, Invocation
from tenure.cli.command.server import LISTENING
from tenure.cli.exit_code import ExitCode
from tenure.cli.failure import CliError
from tenure.cli.parameter import duration_ms, examples, log_format_option, option

if TYPE_CHECKING:
    from tenure.cli.dev.child import CommandProcess
    from tenure.cli.dev.file_watch import Snapshot

_LOOK_SECONDS: Final = 0.3
# After the drain deadline a worker still reports what it hands back, and deregisters.
_GOODBYE_SECONDS: Final = 15.0
# A worker treats two signals within half a second as one, so the second has to wait.
_ECHO_SECONDS: Final = 0.6
_SERVER_SECONDS: Final = 15.0
_KILL_AFTER: Final = 3
# The namespace is there, or the worker says that it is not.
_LEFT_TO_WORKER: Final = {"already_exists", "permission_denied", "unauthenticated"}


class _Options(TypedDict):
    """The options of the command."""

    store: str | None
    schema: str
    http: str
    grpc: str
    namespace: str
    queues: tuple[str, ...]
    drain_deadline_ms: int
    is_reloaded: bool
    log_format: str
    is_quiet: bool
    is_verbose: bool


@click.command(
    short_help="Run a server and a worker for development.",
    epilog=examples(
        "tenure dev app.tasks", "tenure dev app.tasks --store sqlite:///dev.db", "tenure dev"
    ),
)
@click.argument("module", metavar="[MODULE]", required=False, shell_complete=suggestion.modules)
@click.option(
    "--store",
    metavar="URL",
    help="Keep all data in this database, such as sqlite:///dev.db. By default it is removed.",
)
@click.option("--schema", metavar="NAME", default="", help="The schema in a PostgreSQL --store.")
@option(
    "--http",
    default="127.0.0.1:7300",
    metavar="HOST:PORT",
    help="Where to listen for HTTP; port 0 takes a free one.",
)
@option(
    "--grpc",
    default=DEFAULT_TARGET,
    metavar="HOST:PORT",
    help="Where to listen for gRPC; port 0 takes a free one.",
)
@option(
    "--namespace",
    envvar="TENURE_NAMESPACE",
    default=DEFAULT_NAMESPACE,
    metavar="NAME",
    help="The namespace of the worker; created if it does not exist.",
)
@click.option(
    "--queue",
    "queues",
    multiple=True,
    help="A queue whose tasks are run; may be repeated. By default every queue that the "
    "activities are declared for, and default.",
)
@option(
    "--drain-deadline",
    "drain_deadline_ms",
    metavar="DURATION",
    type=duration_ms,
    default="5s",
    help="How long running tasks may take at a reload or at the end.",
)
@option(
    "--reload/--no-reload",
    "is_reloaded",
    default=True,
    help="Start the worker again when a Python file changes.",
)
@log_format_option
@click.option("-q", "--quiet", "is_quiet", is_flag=True, help="Log warnings and errors only.")
@click.option("-v", "--verbose", "is_verbose", is_flag=True, help="Log everything.")
def dev(module: str | None, **options: Unpack[_Options]) -> None:
    """Run a server, and the activities and workflows of MODULE, until Ctrl-C.

    The store is a file that is removed at the end, unless --store names one. When a Python file
    changes, the worker finishes its running tasks, and a new one starts. If the code cannot be
    imported, the error is shown, and the next change is tried. Without MODULE only the server runs.
    """
    from tenure.cli import module as source

    if module is not None:
        source.add_folder()
        source.split(module)
    with _store(options["store"]) as url, _signals() as stops:
        DevSession(module, url, options, stops).run()


class Stops:
    """Counts the signals to stop."""

    def __init__(self) -> None:
        """Start at zero."""
        self.count = 0
        self._asked = threading.Event()

    def ask(self, *_: object) -> None:
        """Count a signal; called by the signal handler."""
        self.count += 1
        self._asked.set()

    def wait(self, seconds: float) -> bool:
        """Wait; True as soon as a signal has come."""
        return self._asked.wait(seconds)


@contextlib.contextmanager
def _signals() -> Iterator[Stops]:
    stops = Stops()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, stops.ask) for number in numbers}
    try:
        yield stops
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _store(given: str | None) -> Iterator[str]:
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="tenure-dev-") as folder:
        yield f"sqlite:///{Path(folder) / 'tenure.db'}"


class DevSession:
    """One run of the command: the server, the current worker, and the watched files."""

    def __init__(self, module: str | None, url: str, options: _Options, stops: Stops) -> None:
        """Prepare; ``run`` starts everything and ends it."""
        self._module = module
        self._url = url
        self._options = options
        self._stops = stops
        self._grpc = ""
        self._worker: CommandProcess | None = None
        self._is_told = False

    def run(self) -> None:
        """Run until a signal comes, or the server has ended."""
        server = self._start_server()
        try:
            self._create_namespace()
            if self._module is not None:
                self._start_worker()
            self._watch(server)
        finally:
            self._end_worker()
            server.close(_SERVER_SECONDS)
        click.echo("Stopped.")

    def _start_server(self) -> CommandProcess:
        from tenure.cli.dev.child import CommandProcess

        options = self._options
        level = "info" if options["is_verbose"] else "warning"
        server = CommandProcess(
            "server",
            *("--store", self._url, "--schema", options["schema"]),
            *("--http", options["http"], "--grpc", options["grpc"]),
            # Endpoints on this machine are what somebody tries first.
            *("--endpoint-allow", "127.0.0.0/8", "--endpoint-allow", "::1"),
            # Its addresses are read from the text format.
            *("--log-level", level, "--log-format", "text"),
            # TLS variables of the environment are for other servers.
            *("--tls-cert", "", "--tls-key", "", "--tls-client-ca", ""),
            is_read=True,
        )
        for line in server.output:
            if line.startswith(LISTENING):
                said = dict(each.split("=", 1) for each in line.split() if "=" in each)
                self._grpc = said["grpc"]
                self._say(said["http"])
                # Its other lines are for people who start a server alone.
                server.ignore_output()
                return server
        server.close(_SERVER_SECONDS)
        # The server has printed the reason.
        raise click.exceptions.Exit(server.exit_code or ExitCode.FAILED)

    def _say(self, http: str) -> None:
        kept = self._options["store"]
        lines = [
            f"Tenure runs for development: http={http} grpc={self._grpc}",
            f"  Store:   {_shown(kept) if kept else 'in a file that is removed at the end'}",
            f"  HTTP:    http://{http}/docs",
        ]
        place = "" if self._grpc == DEFAULT_TARGET else f" --target {self._grpc}"
        namespace = self._options["namespace"]
        place += "" if namespace == DEFAULT_NAMESPACE else f" --namespace {namespace}"
        if self._module is not None:
            is_reloaded = self._options["is_reloaded"]
            lines.append(f"  Worker:  {self._module}{', with reload' if is_reloaded else ''}")
        lines += [f"  Look:    tenure tasks ls{place}", "  Stop:    Ctrl-C"]
        click.echo("\n".join(lines))

    def _create_namespace(self) -> None:
        """Create the namespace, unless it is there or the API key does not allow it."""
        name = self._options["namespace"]
        if name == DEFAULT_NAMESPACE:
            return
        call = Invocation(self._grpc, name, "table")
        try:
            made = call.client.access.create_namespace(name)
        except CliError as error:
            if error.code not in _LEFT_TO_WORKER:
                raise
        else:
            click.echo(f"Namespace {made} was created.")
        finally:
            call.close()

    # -- The worker

    def _start_worker(self) -> None:
        from tenure.cli.dev.child import CommandProcess

        assert self._module is not None
        options = self._options
        flags = ["--quiet"] if options["is_quiet"] else []
        flags += ["--verbose"] if options["is_verbose"] else []
        self._is_told = False
        self._worker = CommandProcess(
            "worker",
            self._module,
            *("--target", self._grpc, "--no-tls", "--namespace", options["namespace"]),
            *_queue_options(options["queues"]),
            *("--drain-deadline", f"{options['drain_deadline_ms']}ms"),
            *("--log-format", options["log_format"]),
            *flags,
            # Nobody would wait for its drain, and the server dies at the same time.
            death_signal=signal.SIGKILL,
        )

    def _end_worker(self) -> None:
        """Drain the worker. The next signal lets it hand back, and one more kills it."""
        worker, self._worker = self._worker, None
        if worker is None:
            return
        begun_with = asked = self._stops.count
        worker.terminate()
        begun_s = told_s = time.monotonic()
        limit_s = self._options["drain_deadline_ms"] / 1_000 + _GOODBYE_SECONDS
        while not worker.wait(_LOOK_SECONDS) and time.monotonic() - begun_s < limit_s:
            if self._stops.count - begun_with >= _KILL_AFTER - 1:
                break
            if self._stops.count > asked and time.monotonic() - told_s > _ECHO_SECONDS:
                asked, told_s = self._stops.count, time.monotonic()
                worker.terminate()
        worker.close(0.0 if worker.exit_code is None else _LOOK_SECONDS)

    # -- The files

    def _watch(self, server: CommandProcess) -> None:
        from tenure.cli.dev import file_watch

        is_watched = self._module is not None and self._options["is_reloaded"]
        root = file_watch.root_of(self._module) if self._module is not None else Path.cwd()
        seen = file_watch.take(root) if is_watched else {}
        while not self._stops.wait(_LOOK_SECONDS):
            if server.exit_code is not None:
                what = f"The server has ended with exit code {server.exit_code}."
                raise CliError(what, hint="Its last lines say why.")
            self._tell_end()
            if is_watched:
                seen = self._reload_if_changed(root, seen)

    def _tell_end(self) -> None:
        """Print once that the worker has ended by itself."""
        code = None if self._worker is None else self._worker.exit_code
        if code is not None and not self._is_told:
            self._is_told = True
            then = " It starts again when a file changes." if self._options["is_reloaded"] else ""
            click.echo(f"The worker has ended with exit code {code}.{then}", err=True)

    def _reload_if_changed(self, root: Path, seen: Snapshot) -> Snapshot:
        from tenure.cli.dev import file_watch

        now = file_watch.take(root)
        changed = file_watch.changed(seen, now)
        if not changed:
            return now
        # An editor or a checkout writes several files: wait until it is done.
        while not self._stops.wait(_LOOK_SECONDS):
            later = file_watch.take(root)
            if later == now:
                break
            now = later
        name = Path(changed[0]).name
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        click.echo(f"{name}{more} changed: the worker starts again.", err=True)
        self._end_worker()
        if not self._stops.count:
            self._start_worker()
        return now


def _queue_options(queues: tuple[str, ...]) -> list[str]:
    if not queues:
        return ["--all-queues"]
    return [part for queue in queues for part in ("--queue", queue)]


def _shown(url: str) -> str:
    from tenure.store.location import shown

    return shown(url)
