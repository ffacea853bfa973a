"""Invariants of workers and leases, checked on each change of their rows."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from tenure.core.worker.lease import Beat, Lease
from tenure.core.worker.record import EndReason, Worker, WorkerStatus
from tests.sim.trace import Violation, short

if TYPE_CHECKING:
    from tests.sim.checker import Checker
    from tests.sim.server import Server
    from tests.sim.world import World

# Clocks drift by a percent at the most, and instants are whole milliseconds.
DRIFT: Final = 0.98
ROUNDING_MS: Final = 5
CROSSED_MS: Final = 50
SPARED_MS: Final = 30_000
RETURNED_MS: Final = 5_000
STALL_MS: Final = 1_000


class WorkerRules:
    """What is known about workers and their leases."""

    def __init__(self, world: World, checker: Checker) -> None:
        self._world = world
        self._checker = checker
        self.rows: dict[str, Worker] = {}
        self.leases: dict[str, Lease] = {}
        self._heard_at_ms: dict[str, float] = {}
        self._ended_at_ms: dict[str, float] = {}
        self._leases_most: dict[str, int] = {}

    def worker_changed(self, old: Worker | None, new: Worker, server: Server) -> None:
        """Check one changed worker."""
        self.rows[new.id] = new
        self._world.note(f"worker {short(new.id)} is {new.status} {new.end_reason or ''}")
        if old is None:
            return
        if old.status is WorkerStatus.OFFLINE:
            same = new.status is old.status and new.end_reason is old.end_reason
            if not same or new.session_no != old.session_no:
                raise Violation(f"offline worker {short(new.id)} was changed", new.id)
            if old.release_pending and not new.release_pending:
                self._check_released(new)
            return
        if new.session_no < old.session_no:
            raise Violation(f"session number of worker {short(new.id)} went back", new.id)
        if old.status is WorkerStatus.DRAINING and new.status is WorkerStatus.ONLINE:
            raise Violation(f"draining worker {short(new.id)} is online again", new.id)
        is_asked = (new.namespace, new.id) in self._world.request_log.drained
        if new.status is WorkerStatus.DRAINING and not is_asked:
            raise Violation(f"nobody drained worker {short(new.id)}", new.id)
        if new.status is WorkerStatus.OFFLINE:
            self._ended_at_ms[new.id] = self._world.now_ms
            self._check_end(new, server)

    def _check_released(self, worker: Worker) -> None:
        """The tasks of this commit are looked at later, so only older holdings count here."""
        self._world.loop.call_soon(self._check_holds_nothing, worker.id)

    def _check_holds_nothing(self, worker_id: str) -> None:
        for task in self._checker.live.values():
            is_kept = task.progress.release_at_ms > 0
            if task.worker_id == worker_id and not is_kept:
                message = f"worker {short(worker_id)} is released but holds {short(task.id)}"
                self._world.fail(Violation(message, worker_id, task.id))

    def _check_end(self, worker: Worker, server: Server) -> None:
        request_log = self._world.request_log
        key = (worker.namespace, worker.id)
        if worker.end_reason is EndReason.LEASE_EXPIRED:
            self._check_expiry(worker, server)
        elif worker.end_reason is EndReason.UNREACHABLE:
            self._check_expiry(worker, server)
            self._world.served.check_unreachable(worker.id)
        elif worker.end_reason is EndReason.EVICTED and key not in request_log.evicted:
            raise Violation(f"nobody evicted worker {short(worker.id)}", worker.id)
        elif worker.end_reason is EndReason.DEREGISTERED and key not in request_log.deregistered:
            raise Violation(f"nobody deregistered worker {short(worker.id)}", worker.id)
        elif (
            worker.end_reason is EndReason.SUPERSEDED and request_log.names[key[0], worker.name] < 2
        ):
            raise Violation(f"nobody superseded worker {short(worker.id)}", worker.id)

    def _check_expiry(self, worker: Worker, server: Server) -> None:
        """A worker is judged after one full lease, or grace, of silence, by one that could hear."""
        world = self._world
        lease = self.leases[worker.id]
        silent_ms = world.now_ms - self._heard_at_ms[worker.id]
        settings = world.settings
        lost_at_ms = world.request_log.lost_sessions.get(worker.id)
        needed_ms = float(lease.lease_ms)
        # A heartbeat that was on its way may be taken just after the end of its session was seen.
        if lost_at_ms is not None and lost_at_ms >= self._heard_at_ms[worker.id] - CROSSED_MS:
            needed_ms = min(needed_ms, float(settings.suspect_grace_ms))
            silent_ms = max(silent_ms, world.now_ms - lost_at_ms)
        if silent_ms < needed_ms * DRIFT - ROUNDING_MS:
            message = f"worker {short(worker.id)} was judged after {silent_ms:.0f} of {needed_ms}"
            raise Violation(message, worker.id)
        running_ms = world.now_ms - server.started_at_ms
        if running_ms < needed_ms * DRIFT - ROUNDING_MS:
            message = f"server {server.number} judged worker {short(worker.id)} after its start"
            raise Violation(message, worker.id)
        if world.now_ms - world.jumped_at_ms < needed_ms * DRIFT - ROUNDING_MS:
            message = f"worker {short(worker.id)} was judged right after the clock jumped"
            raise Violation(message, worker.id)
        if world.now_ms - server.went_on_at_ms < needed_ms * DRIFT - ROUNDING_MS - STALL_MS:
            message = f"server {server.number} judged worker {short(worker.id)} after a stall"
            raise Violation(message, worker.id)
        self._check_spared(worker, lease)

    def _check_spared(self, worker: Worker, lease: Lease) -> None:
        """Workers of a server that died get time to find another one."""
        died_at_ms = self._world.died_at_ms.get(lease.server_id)
        # Who died so soon after the clock was set back has left a row that will look fresh again.
        if died_at_ms is None or died_at_ms < self._world.jumped_at_ms + STALL_MS:
            return
        spared_ms = max(lease.lease_ms, SPARED_MS)
        left = sum(each.server_id == lease.server_id for each in self.leases.values())
        if 2 * left < self._leases_most[lease.server_id]:
            # Most may have come back elsewhere; the others have had the same time.
            spared_ms = min(spared_ms, lease.lease_ms + RETURNED_MS)
        spared_ms -= STALL_MS
        if STALL_MS * 1.5 < self._world.now_ms - died_at_ms < spared_ms:
            message = f"worker {short(worker.id)} was judged although its server had died"
            raise Violation(message, worker.id)

    # -- Leases --------------------------------------------------------------------------------

    def leases_seen(self, leases: dict[str, Lease]) -> None:
        """Check all leases that a commit may have changed."""
        known = self.leases
        for worker_id, new in leases.items():
            old = known.get(worker_id)
            if old is None:
                self._begun(new)
            elif old != new:
                self._changed(old, new)
            if self._checker.status(worker_id) == "offline":
                raise Violation(f"offline worker {short(worker_id)} has a lease", worker_id)
        for worker_id in known.keys() - leases.keys():
            if self._checker.status(worker_id) != "offline":
                raise Violation(f"worker {short(worker_id)} lost its lease", worker_id)
        for server_id, count in Counter(each.server_id for each in leases.values()).items():
            self._leases_most[server_id] = max(count, self._leases_most.get(server_id, 0))
        self.leases = leases

    def _begun(self, lease: Lease) -> None:
        if self._checker.status(lease.worker_id) != "online":
            raise Violation(f"worker {short(lease.worker_id)} lives again", lease.worker_id)
        self._heard_at_ms[lease.worker_id] = self._world.now_ms
        self._check_length(lease)

    def _check_length(self, lease: Lease) -> None:
        longest_ms = self._world.clock.now_ms() + self._world.settings.session_lease_ms
        if lease.lease_until_ms > longest_ms:
            raise Violation(f"the lease of {short(lease.worker_id)} is too long", lease.worker_id)

    def _changed(self, old: Lease, new: Lease) -> None:
        worker_id = new.worker_id
        if self._checker.status(worker_id) == "offline":
            raise Violation(f"offline worker {short(worker_id)} was heard", worker_id)
        if new.lease_until_ms < min(old.lease_until_ms, self._world.clock.now_ms() + new.lease_ms):
            raise Violation(f"the lease of worker {short(worker_id)} went back", worker_id)
        if new.token == old.token:
            if (new.total_completed, new.total_failed) != (old.total_completed, old.total_failed):
                raise Violation(f"a refused heartbeat of {short(worker_id)} counted", worker_id)
            if new.lease_until_ms > old.lease_until_ms:
                raise Violation(f"a refused heartbeat of {short(worker_id)} renewed", worker_id)
            return
        if new.token != old.token + 1:
            raise Violation(f"the token of worker {short(worker_id)} skipped", worker_id)
        self._check_length(new)
        beats = self._world.request_log.beats.get((worker_id, old.token), [])
        if not beats:
            message = f"worker {short(worker_id)} renewed without a heartbeat of token {old.token}"
            raise Violation(message, worker_id)
        totals = (new.total_completed, new.total_failed)
        if totals not in [_totals(old, beat) for beat in beats]:
            raise Violation(f"the totals of worker {short(worker_id)} are wrong", worker_id)
        self._heard_at_ms[worker_id] = self._world.now_ms

    def watch(self) -> None:
        """Check that what offline workers held is put back soon."""
        world = self._world
        for worker_id, ended_at_ms in list(self._ended_at_ms.items()):
            if not self.rows[worker_id].release_pending:
                del self._ended_at_ms[worker_id]
            elif world.now_ms - max(ended_at_ms, world.troubled_at_ms) > world.slack_ms:
                message = f"what offline worker {short(worker_id)} held is not put back"
                raise Violation(message, worker_id)

    def is_heard(self, worker_id: str) -> bool:
        """Tell whether a worker is active."""
        return worker_id in self.leases

    def may_receive(self, worker_id: str) -> Worker:
        """Return a worker that got a task, or complain."""
        worker = self.rows.get(worker_id)
        if worker is None or worker.status is not WorkerStatus.ONLINE:
            status = "unknown" if worker is None else worker.status.value
            message = f"worker {short(worker_id)}, which is {status}, was handed a task"
            raise Violation(message, worker_id)
        return worker

    def check_slots(self, worker: Worker, held_count: int) -> None:
        """A worker never holds more than its slots, however and wherever it asks for work."""
        if held_count > worker.slots:
            message = f"worker {short(worker.id)} holds {held_count} of {worker.slots}"
            raise Violation(message, worker.id)


def _totals(lease: Lease, beat: Beat) -> tuple[int, int]:
    if beat.total_completed >= 0:
        return beat.total_completed, beat.total_failed
    completed = lease.total_completed + beat.completed_delta
    return completed, lease.total_failed + beat.failed_delta
