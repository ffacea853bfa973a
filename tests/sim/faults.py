"""What goes wrong in a world: each seed draws its own mix, and many faults are absent from it."""

from __future__ import annotations

from random import Random

import msgspec


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of messages or moments that a fault hits, and how often a party fails.

    Shares are of 1. Rates are per second of simulated time and for the whole world.
    """

    request_lost: float = 0.0
    reply_lost: float = 0.0
    duplicated: float = 0.0
    slow_share: float = 0.0
    slow_ms: int = 400
    bunch_ms: float = 0.0  # What arrives within it arrives at once, and is one batch of its server.
    stuck_share: float = 0.0  # Of enqueues, which wait in a socket while their client asks again.
    stuck_ms: int = 4_000
    engine_crash_rate: float = 0.0
    engine_stop_rate: float = 0.0
    engine_stop_ms: int = 3_000
    pause_share: float = 0.0
    pause_ms: int = 60
    jump_rate: float = 0.0
    jump_back_ms: int = 4_000
    jump_ahead_ms: int = 20_000
    drift: float = 0.0
    partition_rate: float = 0.0
    partition_ms: int = 2_000
    worker_crash_rate: float = 0.0
    worker_stop_rate: float = 0.0
    worker_stop_ms: int = 4_000
    session_break_rate: float = 0.0
    move_rate: float = 0.0
    drain_rate: float = 0.0
    evict_rate: float = 0.0
    supersede_rate: float = 0.0
    forget_share: float = 0.0
    # Of served workers: answers that are lost for a while, though the calls arrive.
    mute_rate: float = 0.0
    mute_ms: int = 4_000
    served_share: float = 0.0  # Of worlds that have served workers; drawn ones have their own.
    family_share: float = 0.0  # Of worlds that have runs with children; drawn ones have their own.


CALM = Faults()
_MOST = Faults(
    request_lost=0.1,
    reply_lost=0.15,
    duplicated=0.15,
    slow_share=0.2,
    slow_ms=900,
    bunch_ms=80.0,
    stuck_share=0.2,
    stuck_ms=6_000,
    engine_crash_rate=0.25,
    engine_stop_rate=0.15,
    engine_stop_ms=4_000,
    pause_share=0.3,
    pause_ms=150,
    jump_rate=0.2,
    jump_back_ms=4_000,
    jump_ahead_ms=30_000,
    drift=0.01,
    partition_rate=0.3,
    partition_ms=4_000,
    worker_crash_rate=0.4,
    worker_stop_rate=0.3,
    worker_stop_ms=5_000,
    session_break_rate=0.5,
    move_rate=0.5,
    drain_rate=0.2,
    evict_rate=0.1,
    supersede_rate=0.1,
    forget_share=0.05,
)
_SIZES = (
    *("slow_ms", "stuck_ms", "engine_stop_ms", "pause_ms", "partition_ms"),
    *("worker_stop_ms", "jump_back_ms"),
)


def draw(random: Random) -> Faults:
    """Draw a mix: every fault is absent half of the time, in one world of eight all are."""
    if random.random() < 1 / 8:
        return CALM
    most = msgspec.structs.asdict(_MOST)
    chosen = {}
    for name, value in most.items():
        if name in _SIZES or name == "jump_ahead_ms":
            chosen[name] = random.randint(value // 4, value)
        elif random.random() < 0.5:
            chosen[name] = value * random.random()
    return Faults(**chosen)
