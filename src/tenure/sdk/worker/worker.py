"""``Worker``: what a program makes to run activities and workflows."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextvars import Context, copy_context
from pathlib import Path
from types import FrameType
from typing import Any, Final, Literal, TypedDict, Unpack, get_args

from msgspec.structs import replace

from tenure.core import check
from tenure.core.duration import duration_text
from tenure.core.limits import (
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    NAME_LENGTH_MAX,
    WARM_RUNS,
    WARM_RUNS_MAX,
    WORKER_QUEUES_MAX,
    WORKER_SLOTS_MAX,
)
from tenure.errors import InvalidArgument
from tenure.sdk.activity.registry import Registry
from tenure.sdk.duration import Duration, duration_ms
from tenure.sdk.payload import Codec, Converter
from tenure.sdk.transport import manual_clock
from tenure.sdk.transport.channel import Channel
from tenure.sdk.transport.target import find_namespace
from tenure.sdk.transport.tls import TLS, resolve
from tenure.sdk.worker import served_queue
from tenure.sdk.worker.connection.connection import WorkerConnection
from tenure.sdk.worker.connection.incarnation import Setup
from tenure.sdk.worker.connection.worker_heartbeat import boot_time_s
from tenure.sdk.worker.execution.executor import TaskExecutor
from tenure.sdk.worker.execution.runners import Runners
from tenure.sdk.worker.execution.settings import ExecutionSettings
from tenure.sdk.worker.executor_protocol import Executor, Reporter
from tenure.sdk.workflow.definition import Workflow
from tenure.sdk.workflow.guard import Guard
from tenure.sdk.workflow.registry import WorkflowRegistry

Mode = Literal["session", "poll"]

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
# A launcher that forwards signals doubles those of the terminal. Both count as one request.
_ECHO_S: Final = 0.5
_PORT_MAX: Final = 65_535


class WorkerOptions(TypedDict, total=False):
    """The settings of a worker. ``Worker`` explains them."""

    queue: str  # "default"
    queues: Sequence[str]  # instead of queue
    max_concurrent: int  # 100
    max_processes: int | None
    namespace: str | None  # TENURE_NAMESPACE, or "default"
    version: str
    labels: Mapping[str, str] | None
    name: str
    mode: Mode  # "session"
    lease: Duration | None
    drain_deadline: Duration  # "5m"
    health: str | None
    warm_runs: int  # 1,000
    guard: Guard  # "refuse"
    codec: Codec | None
    api_key: str | Path | None
    tls: TLS | bool | None


class Worker:
    """Runs activities and workflows for one queue or several until it is drained.

    >>> worker = Worker("127.0.0.1:7301", queue="mail", activities=[send, Payments(gateway)])
    >>> await worker.run()

    ``queue`` is the queue whose tasks it runs; ``queues=["mail", "reports"]`` names several. They
    share ``max_concurrent``, and the server knows one worker for each of them, named
    ``name@queue`` if there is a ``name``.

    ``target`` is the gRPC address of a server, or several with commas between them. The default
    is the variable TENURE_TARGET, or else ``127.0.0.1:7301``. The default of ``namespace`` is
    TENURE_NAMESPACE, or else ``default``.
    At most ``max_concurrent`` tasks run at a time: activities, runs of ``workflows`` that do not
    wait, and steps that run side by side. Activities with ``executor="process"`` share
    ``max_processes`` child processes, by default one per processor. A ``name`` is unique among
    live workers: a new worker replaces the old one of the same name. ``lease`` is how long the
    server waits for a heartbeat before it gives the tasks to others, 10 s to 10 min. By default
    the server chooses it.
    ``drain_deadline`` is how long running tasks may take after the worker was asked to stop.
    ``warm_runs`` is how many runs that wait stay in memory, so that they go on without a re-run.
    ``guard`` is what happens to a workflow that blocks its thread: ``refuse``, ``warn`` or ``off``.
    ``health`` is the ``host:port`` for the probes ``/livez`` and ``/readyz``. The default of
    ``api_key`` is TENURE_API_KEY, or the file that TENURE_API_KEY_FILE names. A ``Path`` is read
    again when the file changes.
    ``tls=True`` trusts the certificate authorities of the operating system. ``TLS`` names others,
    and the certificate of this worker. The default comes from TENURE_TLS, TENURE_TLS_CA,
    TENURE_TLS_CERT and TENURE_TLS_KEY.
    """

    def __init__(
        self,
        target: str | Sequence[str] | None = None,
        *,
        activities: Iterable[object] = (),
        workflows: Iterable[object] = (),
        **options: Unpack[WorkerOptions],
    ) -> None:
        """Check everything that can be checked here; ``run`` connects.

        Raises ``ValueError`` or ``TypeError`` that says what is wrong.
        """
        for name in options.keys() - WorkerOptions.__annotations__.keys():
            raise TypeError(f"Worker.__init__() got an unexpected keyword argument {name!r}")
        self._workflows = WorkflowRegistry(workflows)
        self._registry = Registry(activities, may_be_empty=bool(self._workflows.types))
        self._codec = options.get("codec")
        self._converter = Converter(self._codec)
        self._channel = Channel(
            target, api_key=options.get("api_key"), tls=resolve(options.get("tls"))
        )
        lease = options.get("lease")
        queues = _queues(options)
        self._setup = _checked(
            Setup(
                namespace=find_namespace(options.get("namespace")),
                queue=queues[0],
                types=_types(self._registry, self._workflows),
                max_concurrent=options.get("max_concurrent", 100),
                mode=options.get("mode", "session"),
                version=options.get("version", ""),
                labels=dict(options.get("labels") or {}),
                name=options.get("name", ""),
                lease_ms=0 if lease is None else _lease_ms(lease),
                drain_deadline_ms=duration_ms(
                    options.get("drain_deadline", "5m"), "drain_deadline"
                ),
                wants_tokens=any(each.traits.completes_later for each in self._registry.activities),
            )
        )
        max_processes = options.get("max_processes")
        if max_processes is not None and not 1 <= max_processes <= WORKER_SLOTS_MAX:
            raise ValueError(f"max_processes must be 1 to {WORKER_SLOTS_MAX}")
        self._warm_runs = _warm_runs(options.get("warm_runs", WARM_RUNS))
        self._guard = _guard(options.get("guard", "refuse"))
        health = options.get("health")
        self._max_processes = max_processes or 0
        self._health = None if health is None else _address(health)
        self._user_loop: asyncio.AbstractEventLoop | None = None
        self._context: Context | None = None
        self._runners: Runners | None = None
        self._ended: Future[None] | None = None
        self._queues = queues
        served_queue.add(self)
        self._connection = WorkerConnection(
            _setups(self._setup, queues), self._channel, self._make_executor, health=self._health
        )

    async def run(self, *, handle_signals: bool = True) -> None:
        """Work until the worker was drained, by a signal, by ``shutdown`` or by an operator.

        The first SIGTERM or SIGINT drains, the second hands back at once. Raises
        ``WorkerSuperseded`` or ``WorkerEvicted`` when the server wants this worker no longer, and
        an error of ``tenure.errors`` when the server refuses it, such as ``NotFound`` for an
        unknown namespace. A server that cannot be reached is waited for.
        """
        if self._ended is not None:
            raise RuntimeError("A worker can be run once. Make a new one.")
        served_queue.warn_of_unserved(self, self._registry.activities, self._workflows.workflows)
        self._user_loop = asyncio.get_running_loop()
        # Activities see the context variables of the code that runs the worker.
        self._context = copy_context()
        with self._signals() if handle_signals else contextlib.nullcontext():
            self._ended = self._connection.start()
            waiting = asyncio.wrap_future(self._ended)
            try:
                await asyncio.shield(waiting)
            except asyncio.CancelledError:
                # A cancelled run should end soon, so running tasks are handed back.
                self._connection.hand_back()
                await asyncio.wait([waiting])
                with contextlib.suppress(Exception):
                    waiting.result()
                raise

    async def shutdown(self, deadline: Duration | None = None) -> None:
        """Drain, and return when the worker has ended; from any thread with an event loop.

        Running tasks have until the deadline, ``drain_deadline`` unless it is given; then they
        are handed back, uncharged. Do not await it inside an activity, which it would wait for:
        use ``request_shutdown`` there.
        """
        self.request_shutdown(deadline)
        if self._ended is not None:
            ended = asyncio.wrap_future(self._ended)
            await asyncio.wait([ended])
            # ``run`` raises the error, if there is one.
            ended.exception()

    def request_shutdown(self, deadline: Duration | None = None) -> None:
        """Begin a drain without waiting for its end; from any thread, and inside activities."""
        self._connection.shut_down(
            None if deadline is None else duration_ms(deadline, "deadline") / 1_000
        )

    @property
    def target(self) -> str:
        """The address of its server, or of its servers."""
        return self._channel.place

    @property
    def queue(self) -> str:
        """The queue whose tasks it runs; of several, the first."""
        return self._setup.queue

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues whose tasks it runs."""
        return self._queues

    @property
    def namespace(self) -> str:
        """The namespace of its queues."""
        return self._setup.namespace

    @property
    def has_ended(self) -> bool:
        """Whether it has run, and runs no more tasks."""
        return self._ended is not None and self._ended.done()

    @property
    def types(self) -> tuple[str, ...]:
        """The types of tasks that it can run."""
        return self._setup.types

    @property
    def workflows(self) -> tuple[Workflow[..., Any], ...]:
        """The workflows that it runs."""
        return tuple(self._workflows.workflows)

    @property
    def codec(self) -> Codec | None:
        """The codec of its payloads, if it has one."""
        return self._codec

    @property
    def guard(self) -> Guard:
        """What happens to a workflow that blocks its thread."""
        return self._guard

    @property
    def worker_id(self) -> str:
        """The id that the server gave; empty while it is not registered.

        A worker of several queues has one for each: with commas between them here, and by queue
        in ``worker_ids``.
        """
        return self._connection.status().worker_id

    @property
    def worker_ids(self) -> dict[str, str]:
        """The id for each queue; empty while it is not registered there."""
        known = self._connection.status().worker_ids
        return {queue: known.get(queue, "") for queue in self.queues}

    @property
    def is_registered(self) -> bool:
        """Whether this worker is registered for every queue, as far as it knows."""
        return all(self.worker_ids.values())

    @property
    def active_count(self) -> int:
        """How many slots are in use. Abandoned threads use one each."""
        return self._connection.status().active_count

    @property
    def health_port(self) -> int:
        """The port of the probes; 0 without ``health``."""
        probe = self._connection.probe
        return 0 if probe is None else probe.port

    def _make_executor(self, reporter: Reporter) -> Executor:
        assert self._user_loop is not None
        server_clock = manual_clock.clocks.get(self._channel.target)
        settings = ExecutionSettings(
            namespace=self._setup.namespace,
            max_concurrent=self._setup.max_concurrent,
            max_processes=self._max_processes,
            warm_runs=self._warm_runs,
            guard=self._guard,
            # Only a session brings news. A clock that a test moves stands still meanwhile.
            can_linger=self._setup.mode == "session" and server_clock is None,
            server_clock=server_clock,
        )
        if self._runners is None:
            self._runners = Runners(self._user_loop, settings, context=self._context)
        return TaskExecutor(
            self._registry, self._converter, reporter, self._runners, settings, self._workflows
        )

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Drain on SIGTERM and SIGINT. Python allows handlers in the main thread only."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        count = 0
        last: dict[int, float] = {}

        def stop(number: int, _frame: FrameType | None) -> None:
            nonlocal count
            now_s = boot_time_s()
            is_echo = now_s - last.get(number, -math.inf) < _ECHO_S
            last[number] = now_s
            if is_echo:
                return
            count += 1
            self._connection.request_stop()
            if count > 1:
                # The third signal ends the process.
                for each in _SIGNALS:
                    signal.signal(each, signal.SIG_DFL)

        # A handler of the event loop would have to wait while an activity blocks the loop.
        before: dict[signal.Signals, Callable[[int, FrameType | None], Any] | int | None] = {
            each: signal.signal(each, stop) for each in _SIGNALS
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _types(activities: Registry, workflows: WorkflowRegistry) -> tuple[str, ...]:
    both = sorted(set(activities.types) & set(workflows.types))
    if both:
        message = f"{both[0]!r} is the name of an activity and of a workflow. Give one of them "
        raise ValueError(f"{message}another name: @workflow(name=…).")
    return (*activities.types, *workflows.types)


def _warm_runs(count: int) -> int:
    if not 0 <= count <= WARM_RUNS_MAX:
        raise ValueError(f"warm_runs must be 0 to {WARM_RUNS_MAX}")
    return count


def _guard(guard: Guard) -> Guard:
    if guard not in get_args(Guard):
        raise ValueError(f"guard must be one of {', '.join(get_args(Guard))}, not {guard!r}")
    return guard


def _queues(options: WorkerOptions) -> tuple[str, ...]:
    """Return the queues that were named; raise ``ValueError`` or ``TypeError`` for bad ones."""
    if "queues" not in options:
        queue: object = options.get("queue", "default")
        if not isinstance(queue, str):
            kind = type(queue).__name__
            raise TypeError(f'queue must be a text, not {kind}; several are queues=["a", "b"]')
        return (queue,)
    if "queue" in options:
        raise ValueError('give either queue="a" or queues=["a", "b"], not both')
    return _checked_queues(options["queues"])


def _checked_queues(given: object) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f'queues must be a list such as ["a", "b"], not {type(given).__name__}')
    queues = tuple(given)
    others = [type(each).__name__ for each in queues if not isinstance(each, str)]
    if others:
        raise TypeError(f"queues must be a list of texts, and one is {others[0]}")
    if not 1 <= len(queues) <= WORKER_QUEUES_MAX:
        raise ValueError(f"queues must name 1 to {WORKER_QUEUES_MAX} queues, not {len(queues)}")
    twice = [each for each in queues if queues.count(each) > 1]
    if twice:
        raise ValueError(f"queues must name each queue once, and {twice[0]!r} is there twice")
    return queues


def _setups(setup: Setup, queues: Sequence[str]) -> list[Setup]:
    """Return one registration for each queue."""
    if len(queues) == 1:
        return [setup]
    setups = []
    for queue in queues:
        name = f"{setup.name}@{queue}" if setup.name else ""
        if len(name) > NAME_LENGTH_MAX:
            raise ValueError(f"name@queue must have at most {NAME_LENGTH_MAX} characters: {name}")
        setups.append(replace(_checked(replace(setup, queue=queue)), name=name))
    return setups


def _checked(setup: Setup) -> Setup:
    """Raise ``ValueError`` for settings that the server would refuse."""
    if setup.mode not in {"session", "poll"}:
        raise ValueError('mode must be "session" or "poll"')
    if not 1 <= setup.max_concurrent <= WORKER_SLOTS_MAX:
        raise ValueError(f"max_concurrent must be 1 to {WORKER_SLOTS_MAX}")
    try:
        if setup.namespace:
            check.namespace(setup.namespace)
        check.name(setup.queue, "queue")
        check.labels(setup.labels)
        if setup.name:
            check.name(setup.name, "name")
    except InvalidArgument as error:
        raise ValueError(error.message) from None
    return setup


def _lease_ms(lease: Duration) -> int:
    lease_ms = duration_ms(lease, "lease")
    if not LEASE_MS_MIN <= lease_ms <= LEASE_MS_MAX:
        limits = f"{duration_text(LEASE_MS_MIN)} and {duration_text(LEASE_MS_MAX)}"
        raise ValueError(f"lease must be between {limits}, not {duration_text(lease_ms)}")
    return lease_ms


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > _PORT_MAX:
        raise ValueError(f"health must be host:port, such as 0.0.0.0:7310, not {text!r}")
    return host.strip("[]"), int(port)
