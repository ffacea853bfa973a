"""Background services, one per file, each with ``run_once`` and safe to run twice."""

from __future__ import annotations

from tenure.engine.service import Job
from tenure.engine.services.child_closing import ChildClosing
from tenure.engine.services.claim_fallback import ClaimFallback
from tenure.engine.services.deaf_watch import DeafWatch
from tenure.engine.services.due_tasks import DueTasks
from tenure.engine.services.endpoint_removal import EndpointRemoval
from tenure.engine.services.held_release import HeldRelease
from tenure.engine.services.hint_channel import HintChannel
from tenure.engine.services.key_use import KeyUse
from tenure.engine.services.lease_judgement import LeaseJudgement
from tenure.engine.services.retention import Retention
from tenure.engine.services.schedule_firing import ScheduleFiring
from tenure.engine.services.seat_round import SeatRound
from tenure.engine.services.server_row import ServerTouch
from tenure.engine.services.space_watch import SpaceWatch
from tenure.engine.services.statistics_rows import StatisticsRows
from tenure.engine.services.vacuum import Vacuum


def all_services() -> list[Job]:
    """Return every service of an engine."""
    return [
        ServerTouch(),
        DueTasks(),
        LeaseJudgement(),
        HeldRelease(),
        SeatRound(),
        EndpointRemoval(),
        ChildClosing(),
        ScheduleFiring(),
        ClaimFallback(),
        HintChannel(),
        DeafWatch(),
        KeyUse(),
        Retention(),
        SpaceWatch(),
        StatisticsRows(),
        Vacuum(),
    ]
