"""Every long test by its name."""

from __future__ import annotations

from typing import Final

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
    replica_latency,
    replica_loss,
    replicas,
    resume,
    rolling,
    rotation,
    server_pause,
    server_restart,
    sqlite_kill,
    store_outage,
    strangers,
    stubborn_drain,
)
from tests.soak.campaign import scene as campaign
from tests.soak.result import Scenario

SCENARIOS: Final[dict[str, Scenario]] = {
    # The engine alone.
    "lost_worker": lost_worker.run,
    "replicas": replicas.run,
    "sqlite_kill": sqlite_kill.run,
    "postgres_restart": postgres_restart.run,
    # Servers, workers and clients on the wire.
    "crash": crash.run,
    "lost_reply": lost_reply.run,
    "lost_beats": lost_beats.run,
    "drain": drain.run,
    "server_restart": server_restart.run,
    "server_pause": server_pause.run,
    "graceful_stop": graceful_stop.run,
    "replica_loss": replica_loss.run,
    "replica_latency": replica_latency.run,
    "store_outage": store_outage.run,
    "paused_backend": paused_backend.run,
    "old_primary": old_primary.run,
    "curl": curl.run,
    "fleet": fleet.run,
    "overload": overload.run,
    "heavy_readers": heavy_readers.run,
    "strangers": strangers.run,
    # What nobody would send on purpose.
    "fuzz_http": fuzz_http.run,
    "fuzz_grpc": fuzz_grpc.run,
    "fuzz_decoders": fuzz_decoders.run,
    # Workers and clients of the SDK.
    "resume": resume.run,
    "blocked": blocked.run,
    "crash_guard": crash_guard.run,
    "rolling": rolling.run,
    "rotation": rotation.run,
    # All of it together, at random.
    "campaign": campaign.run,
    "exclusive_cut": exclusive_cut.run,
    "stubborn_drain": stubborn_drain.run,
    "large_inputs": large_inputs.run,
}
