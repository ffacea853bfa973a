"""Every long test by its name, and how long a stall of the machine it must bear."""

from __future__ import annotations

from typing import Final, NamedTuple

from tests.soak import (
    blocked,
    crash,
    crash_guard,
    curl,
    drain,
    exclusive_cut,
    fleet,
    fuzz_decoders,
    fuzz_grpc,
    fuzz_http,
    graceful_stop,
    heavy_readers,
    large_inputs,
    lost_beats,
    lost_reply,
    lost_worker,
    old_primary,
    overload,
    paused_backend,
    postgres_restart,
    programs,
    replica_latency,
    replica_loss,
    replicas,
    resume,
    rolling,
    rotation,
    run_check,
    run_closing,
    run_code_change,
    run_continue,
    run_eviction,
    run_gather,
    run_kill,
    run_map,
    run_one_slot,
    run_pause,
    run_poll,
    run_races,
    run_replacement,
    run_replicas,
    run_restart,
    served_fleet,
    served_owners,
    server_pause,
    server_restart,
    sleeping_runs,
    sqlite_kill,
    store_outage,
    strangers,
    stubborn_drain,
)
from tests.soak.campaign import scene as campaign
from tests.soak.result import Scenario


class StallLimit(NamedTuple):
    """The longest stall at the small size and at the full one; what is longer excuses a try."""

    small_s: float
    full_s: float


class CatalogEntry(NamedTuple):
    """A long test, and how long a stall it must bear."""

    run: Scenario
    limit: StallLimit

    def allows_s(self, *, is_small: bool) -> float:
        return self.limit.small_s if is_small else self.limit.full_s


# Nobody is lost who is alive. A worker gives up 1 s before its lease ends and beats three times in
# one: with the short lease of 2.4 s it bears 0.6 s, with the default of 15 s it bears 9 s.
LEASES: Final = StallLimit(0.5, 3.0)
# What is measured takes parts of a second at both sizes.
SPEED: Final = StallLimit(0.5, 0.5)
# Leases are long, or there are none: only what hangs is noticed.
NO_TIME: Final = StallLimit(5.0, 5.0)

SCENARIOS: Final[dict[str, CatalogEntry]] = {
    # The engine alone.
    "lost_worker": CatalogEntry(lost_worker.run, LEASES),
    "replicas": CatalogEntry(replicas.run, NO_TIME),
    "run_races": CatalogEntry(run_races.run, NO_TIME),
    "sqlite_kill": CatalogEntry(sqlite_kill.run, NO_TIME),
    "postgres_restart": CatalogEntry(postgres_restart.run, LEASES),
    # Servers, workers and clients on the wire.
    "crash": CatalogEntry(crash.run, LEASES),
    "lost_reply": CatalogEntry(lost_reply.run, LEASES),
    "lost_beats": CatalogEntry(lost_beats.run, NO_TIME),
    "drain": CatalogEntry(drain.run, LEASES),
    "server_restart": CatalogEntry(server_restart.run, LEASES),
    "server_pause": CatalogEntry(server_pause.run, LEASES),
    "graceful_stop": CatalogEntry(graceful_stop.run, LEASES),
    "replica_loss": CatalogEntry(replica_loss.run, LEASES),
    "replica_latency": CatalogEntry(replica_latency.run, SPEED),
    "store_outage": CatalogEntry(store_outage.run, LEASES),
    "paused_backend": CatalogEntry(paused_backend.run, LEASES),
    "old_primary": CatalogEntry(old_primary.run, LEASES),
    "curl": CatalogEntry(curl.run, NO_TIME),
    "fleet": CatalogEntry(fleet.run, SPEED),
    "overload": CatalogEntry(overload.run, SPEED),
    "heavy_readers": CatalogEntry(heavy_readers.run, SPEED),
    "strangers": CatalogEntry(strangers.run, LEASES),
    # Workers that servers call.
    "served_fleet": CatalogEntry(served_fleet.run, SPEED),
    "served_owners": CatalogEntry(served_owners.run, LEASES),
    # What nobody would send on purpose.
    "fuzz_http": CatalogEntry(fuzz_http.run, NO_TIME),
    "fuzz_grpc": CatalogEntry(fuzz_grpc.run, NO_TIME),
    "fuzz_decoders": CatalogEntry(fuzz_decoders.run, NO_TIME),
    # Workers and clients of the SDK.
    "resume": CatalogEntry(resume.run, LEASES),
    "blocked": CatalogEntry(blocked.run, LEASES),
    "crash_guard": CatalogEntry(crash_guard.run, LEASES),
    "rolling": CatalogEntry(rolling.run, LEASES),
    "rotation": CatalogEntry(rotation.run, LEASES),
    # Runs of workflows.
    "run_kill": CatalogEntry(run_kill.run, LEASES),
    "run_restart": CatalogEntry(run_restart.run, LEASES),
    "run_replacement": CatalogEntry(run_replacement.run, LEASES),
    "run_pause": CatalogEntry(run_pause.run, LEASES),
    "run_continue": CatalogEntry(run_continue.run, LEASES),
    "run_poll": CatalogEntry(run_poll.run, LEASES),
    "run_eviction": CatalogEntry(run_eviction.run, NO_TIME),
    # Runs with children, and with code that changes.
    "run_map": CatalogEntry(run_map.run, LEASES),
    "run_gather": CatalogEntry(run_gather.run, NO_TIME),
    "run_one_slot": CatalogEntry(run_one_slot.run, SPEED),
    "run_replicas": CatalogEntry(run_replicas.run, SPEED),
    "run_closing": CatalogEntry(run_closing.run, SPEED),
    "run_code_change": CatalogEntry(run_code_change.run, NO_TIME),
    "run_check": CatalogEntry(run_check.run, NO_TIME),
    "programs": CatalogEntry(programs.run, NO_TIME),
    "sleeping_runs": CatalogEntry(sleeping_runs.run, SPEED),
    # All of it together, at random.
    "campaign": CatalogEntry(campaign.run, LEASES),
    "exclusive_cut": CatalogEntry(exclusive_cut.run, LEASES),
    "stubborn_drain": CatalogEntry(stubborn_drain.run, LEASES),
    "large_inputs": CatalogEntry(large_inputs.run, NO_TIME),
}
