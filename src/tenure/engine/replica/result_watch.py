"""Waiting for finished tasks by id, wherever they are finished.

Tasks that this server finishes are known at once. Tasks of other servers are read: after a hint,
and at an interval. A new id is read once, because its task may be finished already; not if this
server has handed it out and has got no report of it since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import structlog
from msgspec.structs import replace

from tenure.core import check
from tenure.core.limits import WANT_RESULTS_MS, WATCH_IDS_MAX, WATCH_ROWS_MAX
from tenure.core.task.record import Task
from tenure.engine.batch.damage_log import note_damage
from tenure.engine.clock import Clock
from tenure.engine.replica.polling_loop import PollingLoop
from tenure.engine.replica.replica_hints import ReplicaHints
from tenure.engine.settings import Settings
from tenure.engine.store_outage import StoreOutage
from tenure.errors import InvalidArgument, Rejection, Unavailable
from tenure.store.table import news as news_table
from tenure.store.table import task as task_table
from tenure.store.table.task import TaskKey
from tenure.store.transaction import Store

log = structlog.get_logger("tenure.engine")
RETRY_AFTER_MS = 100
Result = Task | Rejection
"""A finished task, or ``not_found`` for an id that is neither live nor in history."""
Listener = Callable[[Result], None]


class ResultWatch:
    """The waiting listeners by task. A listener is called once, from the loop, and removed."""

    def __init__(
        self,
        store: Store,
        replicas: ReplicaHints,
        outage: StoreOutage,
        *,
        clock: Clock,
        settings: Settings,
        is_held: Callable[[TaskKey], bool],
    ) -> None:
        """Start without listeners; ``is_held`` returns what this server itself has handed out."""
        self._store = store
        self._replicas = replicas
        self._clock = clock
        self._settings = settings
        self._is_held = is_held
        self._listeners: dict[TaskKey, dict[Listener, None]] = {}
        self._unread: dict[TaskKey, None] = {}
        self._wanted_at_mono_ms: int | None = None
        self._is_closed = False
        self._polling_loop = PollingLoop("result_watch", self._look, self._period_ms, outage=outage)

    def __len__(self) -> int:
        """Return the number of tasks with listeners."""
        return len(self._listeners)

    def watch(self, key: TaskKey, listener: Listener) -> None:
        """Call ``listener`` once with the finished task (namespace, id), or with ``not_found``.

        The listener of a live task waits. The call comes later, never from inside this function.
        """
        _check(key)
        if self._is_closed:
            message = "The server is shutting down. Try again."
            raise Unavailable(message, reason="shutting_down", retry_after_ms=RETRY_AFTER_MS)
        listeners = self._listeners.get(key)
        if listeners is None:
            self._listeners[key] = {listener: None}
            if not self._is_held(key):
                self._unread[key] = None
                self._polling_loop.call()
            elif self._store.is_shared:
                self._want()
                if not self._polling_loop.has_date:
                    self._polling_loop.call()
        else:
            listeners[listener] = None

    def unwatch(self, key: TaskKey, listener: Listener) -> None:
        """Do not call ``listener`` for this task any more; an unknown one is ignored."""
        listeners = self._listeners.get(key)
        if listeners is not None:
            listeners.pop(listener, None)
            if not listeners:
                self._forget(key)

    def _forget(self, key: TaskKey) -> None:
        del self._listeners[key]
        self._unread.pop(key, None)

    @property
    def is_wanted(self) -> bool:
        """Whether anybody here, or at another server, waits for results."""
        return bool(self._listeners) or self._replicas.is_result_wanted

    def finished(self, key: TaskKey, task: Task, *, is_new: bool) -> None:
        """Take in a task that this server has finished; others get a hint if they wait."""
        if key in self._listeners:
            # The write of an existing row has increased its version.
            self._answer(key, task if is_new else replace(task, version=task.version + 1))
        elif self._replicas.is_result_wanted:
            self._replicas.tell_result(key)

    def hear(self, keys: Iterable[TaskKey], *, is_all: bool) -> None:
        """Read tasks that another server has finished; ``is_all`` if there were too many."""
        told = self._listeners if is_all else [key for key in keys if key in self._listeners]
        if told:
            self._unread.update(dict.fromkeys(told))
            self._polling_loop.call()

    async def serve(self) -> None:
        """Read the tasks with listeners until cancelled."""
        await self._polling_loop.serve()

    def close(self) -> None:
        """Remove all listeners: the server stops."""
        self._is_closed = True
        self._listeners.clear()
        self._unread.clear()

    def _period_ms(self) -> int | None:
        if not self._listeners or not self._store.is_shared:
            return None
        settings = self._settings
        return settings.fallback_poll_ms if self._store.is_listening else settings.news_poll_ms

    async def _look(self, is_full: bool) -> None:  # noqa: FBT001 (the polling loop's signature)
        if is_full:
            self._unread.update(dict.fromkeys(self._listeners))
        while self._unread:
            keys = list(islice(self._unread, WATCH_IDS_MAX))
            for key in keys:
                del self._unread[key]
            try:
                await self._read(keys)
            except BaseException:
                # Ids that still have listeners are read again.
                self._unread.update({key: None for key in keys if key in self._listeners})
                raise
        self._want()

    async def _read(self, keys: Sequence[TaskKey]) -> None:
        """Answer for finished or unknown tasks. Live comes first: tasks move to history."""
        live = await self._store.read(lambda tx: news_table.find_tasks(tx, keys))
        for some in _chunks([key for key in keys if key not in live], WATCH_ROWS_MAX):
            found = await self._store.read(lambda tx, some=some: task_table.load_history(tx, some))  # type: ignore[misc]  # bound early
            note_damage(found)
            finished = {(task.namespace, task.id): task for task in found}
            for key in some:
                self._answer(key, finished.get(key) or _not_found(key))

    def _want(self) -> None:
        """Notify the others that results are waited for here."""
        if not self._listeners or not self._store.is_shared:
            return
        mono_ms = self._clock.monotonic_ms()
        last_ms = self._wanted_at_mono_ms
        if last_ms is None or mono_ms - last_ms >= WANT_RESULTS_MS:
            self._wanted_at_mono_ms = mono_ms
            self._replicas.want_results()

    def _answer(self, key: TaskKey, result: Result) -> None:
        listeners = self._listeners.pop(key, None)
        if listeners is None:
            return
        self._unread.pop(key, None)
        for listener in listeners:
            try:
                listener(result)
            except Exception:
                # The mistake of one listener must not affect the others.
                log.exception("result.listener_failed", task_id=key[1])


def _check(key: TaskKey) -> None:
    namespace, task_id = key
    if check.namespace(namespace) != namespace:
        message = "namespace must be tenant/workspace here"
        raise InvalidArgument(message, field="namespace")
    check.task_id(task_id, "taskId")


def _not_found(key: TaskKey) -> Rejection:
    return Rejection("not_found", f"Task {key[1]} was not found.")


def _chunks(keys: Sequence[TaskKey], size: int) -> Iterator[Sequence[TaskKey]]:
    for start in range(0, len(keys), size):
        yield keys[start : start + size]
