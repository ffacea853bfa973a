"""How long a server has been able to hear its workers."""

from tenure.core.worker import judge_readiness
from tenure.core.worker.judge_readiness import JudgeReadiness


def watched(*gaps_ms: int, drift_ms: int = 0) -> JudgeReadiness:
    """Return the sight of a server whose lane committed after each gap."""
    mono_ms, store_ms = 50, 1_000_000
    seen = judge_readiness.begin(mono_ms=mono_ms, store_now_ms=store_ms)
    for gap_ms in gaps_ms:
        mono_ms += gap_ms
        store_ms += gap_ms + drift_ms
        seen = judge_readiness.commit(seen, mono_ms=mono_ms, store_now_ms=store_ms)
    return seen


def test_a_server_that_starts_has_seen_nothing() -> None:
    assert judge_readiness.sighted_ms(watched(), mono_ms=50) == 0


def test_sight_grows_while_the_lane_commits_each_second() -> None:
    assert judge_readiness.sighted_ms(watched(1_000, 1_000, 400), mono_ms=2_450) == 2_400
    assert judge_readiness.sighted_ms(watched(1_000), mono_ms=2_050) == 2_000


def test_a_lane_that_has_not_committed_for_over_a_second_is_blind() -> None:
    assert judge_readiness.sighted_ms(watched(1_000), mono_ms=2_051) == 0


def test_sight_starts_over_after_a_gap() -> None:
    seen = watched(1_000, 1_001, 600)
    assert judge_readiness.sighted_ms(seen, mono_ms=2_651) == 600


def test_sight_starts_over_when_the_loop_stalled() -> None:
    seen = judge_readiness.stall(watched(1_000, 500), mono_ms=1_700)
    assert judge_readiness.sighted_ms(seen, mono_ms=1_900) == 200


def test_a_small_drift_of_the_clocks_is_none() -> None:
    assert judge_readiness.sighted_ms(watched(500, 500, drift_ms=1_000), mono_ms=1_050) == 1_000


def test_sight_starts_over_when_the_stores_time_jumps_forward() -> None:
    assert judge_readiness.sighted_ms(watched(500, drift_ms=1_001), mono_ms=550) == 0


def test_sight_starts_over_when_the_stores_time_jumps_back() -> None:
    assert judge_readiness.sighted_ms(watched(500, drift_ms=-1_001), mono_ms=600) == 50


def test_sight_is_measured_again_at_the_instant_of_a_judgement() -> None:
    seen = watched(1_000, 500)
    assert judge_readiness.still_sighted_ms(seen, mono_ms=1_650, store_now_ms=1_001_600) == 1_600


def test_a_jump_since_the_last_heartbeat_blinds_a_judgement() -> None:
    seen = watched(1_000, 500)
    assert judge_readiness.still_sighted_ms(seen, mono_ms=1_650, store_now_ms=1_021_600) == 0


def test_a_stall_since_the_last_heartbeat_blinds_a_judgement() -> None:
    seen = watched(1_000, 500)
    assert judge_readiness.still_sighted_ms(seen, mono_ms=3_650, store_now_ms=1_003_600) == 0
