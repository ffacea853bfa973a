"""``tenure worker``: runs the activities and workflows of a module."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

import click
from click.core import ParameterSource

from tenure.cli import suggestion
from tenure.cli.client.invocation import namespace_option, target_option
from tenure.cli.exit_code import ExitCode
from tenure.cli.failure import CliError, refused
from tenure.cli.help import ConnectionOption, HelpCommand
from tenure.cli.parameter import duration_ms, examples, label_option, log_format_option, option
from tenure.core.limits import WARM_RUNS, WARM_RUNS_MAX

if TYPE_CHECKING:
    from tenure.cli.worker_log import Format
    from tenure.sdk.transport.tls import TLS
    from tenure.sdk.worker.worker import Worker
    from tenure.sdk.workflow.guard import Guard

REGISTERED: Final = "Tenure worker is registered:"
_LOOK_SECONDS: Final = 0.02
# Each setting of ``Worker``, with the parameters that set it here. They are refused for a worker
# that is made in code.
SETTINGS: Final[dict[str, tuple[str, ...]]] = {
    "target": ("target",),
    "queue": ("queues",),
    "queues": ("queues", "is_all_queues"),
    "max_concurrent": ("max_concurrent",),
    "max_processes": ("max_processes",),
    "namespace": ("namespace",),
    "version": ("version",),
    "labels": ("labels",),
    "name": ("name",),
    "mode": ("mode",),
    "lease": ("lease_ms",),
    "drain_deadline": ("drain_deadline_ms",),
    "health": ("health",),
    "warm_runs": ("warm_runs",),
    "guard": ("guard",),
    "codec": ("codec",),
    "api_key": ("api_key", "api_key_file"),
    "tls": ("is_tls", "tls_ca", "tls_cert", "tls_key"),
}


class _Options(TypedDict):
    """The options of the command."""

    queues: tuple[str, ...]
    is_all_queues: bool
    namespace: str
    target: str
    max_concurrent: int
    max_processes: int | None
    name: str
    version: str
    labels: tuple[tuple[str, str], ...]
    mode: str
    lease_ms: int | None
    health: str | None
    warm_runs: int
    guard: Guard
    codec: str | None
    drain_deadline_ms: int
    wait_ms: int
    log_format: Format
    is_quiet: bool
    is_verbose: bool
    api_key: str
    api_key_file: Path | None
    tls: TLS | None


@click.command(
    cls=HelpCommand,
    short_help="Run the activities and workflows of a module.",
    epilog=examples(
        "tenure worker app.tasks",
        "tenure worker app.tasks --queue mail --queue reports --max-concurrent 20",
        "tenure worker app.main:worker",
        "tenure worker app.tasks --health 0.0.0.0:7310 --drain-deadline 10m",
    ),
)
@click.argument("module", metavar="MODULE", shell_complete=suggestion.modules)
@option(
    "--queue",
    "queues",
    default=("default",),
    multiple=True,
    help="A queue whose tasks are run; may be repeated.",
)
@click.option(
    "--all-queues",
    "is_all_queues",
    is_flag=True,
    help="Run the tasks of every queue that the activities are declared for, and of default.",
)
@namespace_option
@target_option
@option(
    "--api-key-file",
    cls=ConnectionOption,
    envvar="TENURE_API_KEY_FILE",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A file with the API key. It is read again when it changes.",
)
@option(
    "--max-concurrent",
    type=click.IntRange(1),
    default=100,
    help="How many tasks run at a time, of all queues together.",
)
@click.option(
    "--max-processes",
    type=click.IntRange(1),
    help="How many processes run activities with executor=process; by default one per processor.",
)
@option(
    "--warm-runs",
    type=click.IntRange(0, WARM_RUNS_MAX),
    default=WARM_RUNS,
    help="How many waiting workflow runs stay in memory, so that they go on without a re-run.",
)
@option(
    "--guard",
    type=click.Choice(["refuse", "warn", "off"]),
    default="refuse",
    help="What happens to a workflow that blocks its thread.",
)
@click.option(
    "--name", default="", help="A unique name. A new worker replaces the one that has it."
)
@click.option(
    "--version",
    default="",
    help="The version of your code, shown in lists. Workers can be drained by it.",
)
@label_option("A label of this worker; may be repeated.")
@option(
    "--mode",
    type=click.Choice(["session", "poll"]),
    default="session",
    help="One stream, or long polls.",
)
@click.option(
    "--lease",
    "lease_ms",
    metavar="DURATION",
    type=duration_ms,
    help="How long the server waits for a heartbeat before others get the tasks; 10s to 10m.",
)
@option(
    "--health",
    envvar="TENURE_WORKER_HEALTH",
    metavar="HOST:PORT",
    help="Where to answer probes: /livez and /readyz.",
)
@click.option(
    "--codec",
    metavar="MODULE:NAME",
    help="The codec of payloads: an object, or a class or function that makes it.",
)
@option(
    "--drain-deadline",
    "drain_deadline_ms",
    metavar="DURATION",
    type=duration_ms,
    default="5m",
    help="How long running tasks may take after a signal to stop.",
)
@option(
    "--wait",
    "wait_ms",
    metavar="DURATION",
    type=duration_ms,
    default="30s",
    help="How long to try to reach the server at the start.",
)
@log_format_option
@click.option("-q", "--quiet", "is_quiet", is_flag=True, help="Log warnings and errors only.")
@click.option(
    "-v", "--verbose", "is_verbose", is_flag=True, help="Log everything, with tracebacks."
)
@click.pass_context
def worker(ctx: click.Context, module: str, **options: Unpack[_Options]) -> None:
    """Run the activities and workflows of MODULE until SIGTERM or Ctrl-C.

    MODULE is package.module: its worker, or every workflow in it with the list in its variable
    `activities`, or with every activity in it. package.module:name is a worker, an activity, a
    workflow, a list of them, or a function that makes one.

    The first signal drains: the worker takes no new tasks, finishes the running ones, and exits
    with code 0. The second signal hands back the tasks that still run.
    """
    # Without this, gRPC writes its own lines about each failed connection.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from tenure.cli import module as source
    from tenure.cli.worker_log import configure

    if _is_given(ctx, "api_key_file") and not _is_given(ctx, "api_key"):
        # What is said here wins over a key of the environment.
        options["api_key"] = ""
    source.add_folder()
    source.split(module)
    found = source.load(module, is_verbose=options["is_verbose"])
    configure(options["log_format"], is_quiet=options["is_quiet"], is_verbose=options["is_verbose"])
    made = _made(module, found, options) if isinstance(found, list) else found
    if made is found:
        _refuse_options(ctx, module)
    _run(made, options)


def _made(module: str, found: list[object], options: _Options) -> Worker:
    from tenure.cli import module as source
    from tenure.sdk.worker.worker import Worker
    from tenure.sdk.workflow import registry

    codec, lease_ms = options["codec"], options["lease_ms"]
    activities, workflows = registry.split(found)
    try:
        return Worker(
            options["target"],
            activities=activities,
            workflows=workflows,
            queues=_queues(found, options),
            namespace=options["namespace"],
            max_concurrent=options["max_concurrent"],
            max_processes=options["max_processes"],
            name=options["name"],
            version=options["version"],
            labels=dict(options["labels"]),
            mode="poll" if options["mode"] == "poll" else "session",
            lease=None if lease_ms is None else lease_ms / 1_000,
            health=options["health"],
            warm_runs=options["warm_runs"],
            guard=options["guard"],
            codec=None if codec is None else source.load_codec(codec),
            drain_deadline=options["drain_deadline_ms"] / 1_000,
            api_key=options["api_key"] or options["api_key_file"] or "",
            tls=options["tls"] or False,
        )
    except (ValueError, TypeError) as error:
        what = f"A worker of {module} cannot be made: {error}."
        raise CliError(what.replace("..", "."), exit_code=ExitCode.USAGE) from error


def _is_given(ctx: click.Context, name: str) -> bool:
    """Return whether an option was given on the command line, not by the environment."""
    return ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _queues(found: list[object], options: _Options) -> list[str]:
    from tenure.sdk.worker.served_queue import declared_queues

    named = list(options["queues"])
    if not options["is_all_queues"]:
        return named
    return [*named, *(each for each in declared_queues(found) if each not in named)]


def _refuse_options(ctx: click.Context, module: str) -> None:
    """Refuse settings for a worker that is made in code, because they would have no effect."""
    in_code = {name for names in SETTINGS.values() for name in names}
    for parameter in ctx.command.params:
        if parameter.name in in_code and _is_given(ctx, str(parameter.name)):
            raise CliError(
                f"The worker of {module} is made in code, so {parameter.opts[-1]} has no effect.",
                hint="Set it where the worker is made, or name a list of activities.",
                exit_code=ExitCode.USAGE,
            )


def _run(worker: Worker, options: _Options) -> None:
    import asyncio

    from tenure.errors import TenureError
    from tenure.sdk.failure import WorkerEvicted, WorkerSuperseded

    try:
        is_greeted = options["log_format"] == "text"
        asyncio.run(_serve(worker, options["wait_ms"] / 1_000, is_greeted=is_greeted))
    except (WorkerEvicted, WorkerSuperseded) as error:
        raise CliError(str(error), exit_code=ExitCode.CONFLICT) from None
    except TenureError as error:
        raise refused(error.code, error.message, {}) from None
    except OSError as error:
        what = f"Cannot listen on {options['health']}: {error.strerror or error}."
        raise CliError(what, hint="Change --health.", exit_code=ExitCode.USAGE) from error


async def _serve(worker: Worker, wait_s: float, *, is_greeted: bool) -> None:
    """Run the worker. Give up if it cannot register within the time."""
    import asyncio

    running = asyncio.ensure_future(worker.run())
    greeting = asyncio.ensure_future(_greet(worker, wait_s, is_greeted=is_greeted))
    await asyncio.wait((running, greeting), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        greeting.cancel()
        await asyncio.gather(greeting, return_exceptions=True)
    elif not greeting.result():
        worker.request_shutdown("1ms")
        await asyncio.wait((running,))
        raise _unreachable(worker, wait_s)
    await running


async def _greet(worker: Worker, wait_s: float, *, is_greeted: bool) -> bool:
    """Print that the worker is registered; False if that takes too long. JSON logs have a line."""
    import asyncio

    try:
        async with asyncio.timeout(wait_s):
            while not worker.is_registered:  # noqa: ASYNC110 (there is no event to wait for)
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError:
        return False
    if is_greeted:
        click.echo(_greeting(worker))
        sys.stdout.flush()
    return True


def _greeting(worker: Worker) -> str:
    workflows = [each.name for each in worker.workflows]
    activities = [each for each in worker.types if each not in workflows]
    lines = [
        f"{REGISTERED} id={worker.worker_id} queue={','.join(worker.queues)}",
        f"  Server:      {worker.target}",
    ]
    if activities:
        lines.append(f"  Activities:  {', '.join(activities)}")
    if workflows:
        lines.append(f"  Workflows:   {', '.join(workflows)}")
    if worker.health_port:
        lines.append(f"  Probes:      port {worker.health_port}, /livez and /readyz")
    return "\n".join([*lines, "  Stop:        Ctrl-C"])


def _unreachable(worker: Worker, wait_s: float) -> CliError:
    return CliError(
        f"No server answers at {worker.target}.",
        why=f"It was tried for {wait_s:g} s.",
        hint="Start one with tenure server, check --target, or wait longer with --wait.",
        exit_code=ExitCode.UNREACHABLE,
    )
