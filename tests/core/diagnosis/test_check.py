"""What counts as a warning and as a problem: every check, at its limits."""

from __future__ import annotations

from typing import Any

import pytest

from tenure.core.diagnosis import server_check as rules
from tenure.core.diagnosis import worker_check as fleet
from tenure.core.diagnosis.finding import Finding, Level
from tenure.core.diagnosis.server_check import Disk, Latency, ServerRow
from tenure.core.diagnosis.worker_check import (
    Healths,
    Overdue,
    Sdk,
    StuckLease,
    Unreleased,
    WaitingLine,
)
from tenure.core.instant import instant_text
from tenure.core.limits import (
    DISK_PROBLEM_BYTES,
    DISK_WARNING_BYTES,
    FINDINGS_MAX,
    STALE_SERVER_MS,
    STUCK_MS,
    WAITING_PROBLEM_MS,
    WAL_WARNING_BYTES,
)
from tenure.core.worker.health import Health
from tenure.core.worker.record import WorkerStatus

NOW = 10_000_000
NAMESPACE = "acme/default"
OTHER = "default/default"
OK, WARNING, PROBLEM = Level.OK, Level.WARNING, Level.PROBLEM
SQLITE = {"journal_mode": "wal", "synchronous": "2", "file": "x", "version": "3"}
POSTGRES = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "autovacuum": "on",
    "max_connections": "103",
    "superuser_reserved_connections": "3",
    "connection_count": "20",
    "version": "170002",
    "data_checksums": "on",
}


def levels(findings: list[Finding]) -> list[Level]:
    return [each.level for each in findings]


class TestClocks:
    @pytest.mark.parametrize(
        ("ahead_ms", "level"),
        [(0, OK), (-999, OK), (1_000, WARNING), (-9_999, WARNING), (10_000, PROBLEM)],
    )
    def test_clocks_may_differ_by_less_than_a_second(self, ahead_ms: int, level: Level) -> None:
        assert rules.check_clocks(store_ahead_ms=ahead_ms).level is level
        assert rules.check_client_clock(client_ahead_ms=ahead_ms).level is level

    def test_it_says_which_clock_is_ahead(self) -> None:
        ahead = rules.check_clocks(store_ahead_ms=65_000)
        assert ahead.message == "The clock of the store is 1m5s ahead of that of this server."
        behind = rules.check_clocks(store_ahead_ms=-2_000)
        assert "2s behind" in behind.message
        assert "2s ahead of" in rules.check_client_clock(client_ahead_ms=2_000).message
        assert "2s behind" in rules.check_client_clock(client_ahead_ms=-2_000).message


class TestStore:
    @pytest.mark.parametrize(
        ("read_ms", "commit_ms", "level"),
        [(1, 249, OK), (250, 1, WARNING), (1, 999, WARNING), (1, 1_000, PROBLEM)],
    )
    def test_the_slower_of_read_and_commit_counts(
        self, read_ms: int, commit_ms: int, level: Level
    ) -> None:
        assert rules.check_latency(Latency(read_ms, commit_ms)).level is level

    @pytest.mark.parametrize(
        ("changes", "level", "word"),
        [
            ({}, OK, "on disk"),
            ({"synchronous": "3"}, OK, "on disk"),
            ({"synchronous": "1"}, PROBLEM, "synchronous=NORMAL"),
            ({"synchronous": "0"}, PROBLEM, "synchronous=OFF"),
            ({"journal_mode": "memory"}, PROBLEM, "in memory"),
            ({"journal_mode": "delete"}, WARNING, "journal_mode=delete"),
        ],
    )
    def test_sqlite_keeps_what_it_commits(
        self, changes: dict[str, str], level: Level, word: str
    ) -> None:
        found = rules.check_durability("sqlite", {**SQLITE, **changes})
        assert found.level is level
        assert word in found.message

    @pytest.mark.parametrize(
        ("changes", "level", "word"),
        [
            ({}, OK, "on disk"),
            ({"synchronous_commit": "remote_apply"}, OK, "on disk"),
            ({"fsync": "off"}, PROBLEM, "fsync = off"),
            ({"synchronous_commit": "off"}, PROBLEM, "synchronous_commit = off"),
            ({"full_page_writes": "off"}, PROBLEM, "full_page_writes = off"),
        ],
    )
    def test_postgresql_keeps_what_it_commits(
        self, changes: dict[str, str], level: Level, word: str
    ) -> None:
        found = rules.check_durability("postgres", {**POSTGRES, **changes})
        assert found.level is level
        assert word in found.message

    def test_everything_that_is_wrong_is_named(self) -> None:
        settings = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        message = rules.check_durability("postgres", settings).message
        assert message.count("= off") == 3

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({}, [OK, OK, OK, OK]),
            ({"version": "120009"}, [PROBLEM, OK, OK, OK]),
            ({"version": "130001"}, [OK, OK, OK, OK]),
            ({"connection_count": "80"}, [OK, WARNING, OK, OK]),
            ({"connection_count": "95"}, [OK, PROBLEM, OK, OK]),
            ({"max_connections": "3", "connection_count": "1"}, [OK, PROBLEM, OK, OK]),
            ({"autovacuum": "off"}, [OK, OK, WARNING, OK]),
            ({"data_checksums": "off"}, [OK, OK, OK, WARNING]),
        ],
    )
    def test_a_database_server_has_version_room_vacuum_and_checksums(
        self, changes: dict[str, str], expected: list[Level]
    ) -> None:
        assert levels(rules.check_database_server({**POSTGRES, **changes})) == expected

    @pytest.mark.parametrize(
        ("applied", "known", "level", "word"),
        [
            (["1", "2"], ["1", "2"], OK, "knows"),
            (["1"], ["1", "2"], PROBLEM, "lacks migrations of this server: 2"),
            ([], ["1"], PROBLEM, "lacks"),
            (["1", "2", "3"], ["1", "2"], WARNING, "of a newer server: 3"),
        ],
    )
    def test_the_schema_is_that_of_the_server(
        self, applied: list[str], known: list[str], level: Level, word: str
    ) -> None:
        found = rules.check_migrations(applied=applied, known=known)
        assert found.level is level
        assert word in found.message

    @pytest.mark.parametrize(
        ("free", "wal", "level"),
        [
            (DISK_WARNING_BYTES + 1, 0, OK),
            (DISK_WARNING_BYTES, 0, WARNING),
            (DISK_PROBLEM_BYTES, 0, PROBLEM),
            (10 * DISK_WARNING_BYTES, WAL_WARNING_BYTES, WARNING),
        ],
    )
    def test_a_file_has_room(self, free: int, wal: int, level: Level) -> None:
        found = rules.check_disk(size_bytes=5 << 20, disk=Disk(free, 10**12, wal))
        assert found.level is level
        assert found.evidence["freeBytes"] == str(free)

    @pytest.mark.parametrize(
        ("size", "shown"),
        [(4_096, "4 KiB"), (50 << 20, "50 MiB"), (9 << 30, "9216 MiB"), (64 << 30, "64 GiB")],
    )
    def test_of_a_database_server_the_size_is_told(self, size: int, shown: str) -> None:
        found = rules.check_disk(size_bytes=size, disk=None)
        assert (found.level, found.message) == (OK, f"The database has {shown}.")

    @pytest.mark.parametrize(
        ("is_shared", "is_listening", "level"),
        [(False, False, OK), (True, True, OK), (True, False, WARNING)],
    )
    def test_servers_that_share_a_store_hear_of_each_other(
        self, is_shared: bool, is_listening: bool, level: Level
    ) -> None:
        found = rules.check_listening(is_shared=is_shared, is_listening=is_listening)
        assert found.level is level


class TestServers:
    LIVE = ServerRow("a", 0, NOW - STALE_SERVER_MS + 1, 5)
    DEAD = ServerRow("b", 0, NOW - STALE_SERVER_MS, 0)

    def test_servers_that_stopped_are_only_counted(self) -> None:
        found = rules.check_servers([self.LIVE, self.DEAD], now_ms=NOW)
        assert (found.level, found.message) == (OK, "1 server works on this store.")
        assert found.evidence == {"liveCount": "1", "goneCount": "1"}
        assert "2 servers work" in rules.check_servers([self.LIVE] * 2, now_ms=NOW).message

    def test_workers_of_a_dead_server_have_lost_their_way(self) -> None:
        lost = ServerRow("b", 0, NOW - STALE_SERVER_MS, 3)
        found = rules.check_servers([self.LIVE, lost], now_ms=NOW)
        assert (found.level, found.message.split()[2]) == (WARNING, "a")
        assert "b (last seen" in found.evidence["gone"]
        assert "of 2 dead servers" in rules.check_servers([lost] * 2, now_ms=NOW).message


def healths(health: Health, count: int, **changes: Any) -> Healths:
    fields = {"namespace": NAMESPACE, "status": WorkerStatus.ONLINE, **changes}
    return Healths(**fields, health=health, count=count)


class TestWorkers:
    def test_a_fleet_that_is_well(self) -> None:
        rows = [healths(Health.HEALTHY, 3), healths(Health.LATE, 1, status=WorkerStatus.DRAINING)]
        (found,) = fleet.check_health(rows)
        assert (found.level, found.message) == (OK, "4 workers, none unhealthy.")

    def test_some_that_are_unwell_are_a_warning_and_all_of_them_a_problem(self) -> None:
        rows = [
            healths(Health.HEALTHY, 3),
            healths(Health.LATE, 2),
            healths(Health.STUCK, 1, namespace=OTHER),
        ]
        some, whole = fleet.check_health(rows)
        assert some.level is WARNING
        assert some.message == "2 of 5 workers in acme/default are unhealthy: 2 late."
        assert some.advice.endswith("tenure workers ls --namespace acme/default")
        assert whole.level is PROBLEM
        assert whole.message == "1 of 1 worker in default/default is unhealthy: 1 stuck."
        assert whole.advice.endswith("tenure workers ls")

    def test_an_sdk_of_another_release_is_a_warning(self) -> None:
        sdks = [Sdk(NAMESPACE, "python/1.4.9", 2), Sdk(NAMESPACE, "python/1.3.0", 1)]
        (found,) = fleet.check_sdks(sdks, server_version="1.4.0")
        assert found.level is WARNING
        assert "1 worker in acme/default run with SDK python/1.3.0" in found.message

    def test_an_sdk_that_is_not_known_is_only_counted(self) -> None:
        (found,) = fleet.check_sdks([Sdk(NAMESPACE, "", 2)], server_version="1.4.0")
        assert (found.level, found.evidence["unknownCount"]) == (OK, "2")

    def test_leases_that_nobody_judged_are_a_problem(self) -> None:
        assert levels(fleet.check_leases([], now_ms=NOW)) == [OK]
        leases = [
            StuckLease(f"w-{number}", NAMESPACE, "", NOW - 90_000 + number) for number in range(7)
        ]
        mine, theirs = fleet.check_leases(
            [*leases, StuckLease("w-9", OTHER, "bob", NOW - 61_000)], now_ms=NOW
        )
        assert mine.level is PROBLEM
        assert mine.message.startswith("7 leases in acme/default ended up to 1m30s ago")
        assert mine.evidence["workers"] == "w-0, w-1, w-2, w-3, w-4 …"
        assert "tenure workers evict w-0 --namespace acme/default" in mine.advice
        assert theirs.evidence["workers"] == "bob"

    def test_tasks_that_were_not_put_back_are_a_problem(self) -> None:
        assert levels(fleet.check_releases([], now_ms=NOW)) == [OK]
        (found,) = fleet.check_releases(
            [Unreleased("w-1", NAMESPACE, "bob", NOW - 90_000)], now_ms=NOW
        )
        assert found.level is PROBLEM
        assert "The tasks of 1 worker in acme/default that ended up to 1m30s ago" in found.message

    def test_what_ended_a_minute_ago_should_have_been_dealt_with(self) -> None:
        assert fleet.stuck_before_ms(NOW) == NOW - STUCK_MS


class TestWork:
    def test_late_timers_are_a_problem(self) -> None:
        assert levels(fleet.check_timers([], now_ms=NOW)) == [OK]
        (found,) = fleet.check_timers([Overdue(NAMESPACE, 3, NOW - 90_000)], now_ms=NOW)
        assert found.level is PROBLEM
        assert found.message == "3 timers of tasks in acme/default are up to 1m30s late."

    def test_old_work_that_nobody_offers_to_do_is_a_problem(self) -> None:
        old, young = NOW - WAITING_PROBLEM_MS, NOW - WAITING_PROBLEM_MS + 1
        lines = [
            WaitingLine(NAMESPACE, "default", "mail", old),
            WaitingLine(NAMESPACE, "default", "sms", young),
            WaitingLine(NAMESPACE, "default", "push", old - 1),
            WaitingLine(NAMESPACE, "slow", "mail", old),
        ]
        offered = {(NAMESPACE, "default"): {"mail"}}
        first, second = fleet.check_waiting(lines, offered, now_ms=NOW)
        assert (first.level, first.evidence["type"]) == (PROBLEM, "push")
        assert second.evidence["queue"] == "slow"
        assert second.evidence["waitingSince"] == instant_text(old)
        assert second.advice.endswith("tenure worker MODULE --queue slow --namespace acme/default")

    def test_work_that_somebody_offers_to_do_is_fine(self) -> None:
        lines = [WaitingLine(NAMESPACE, "default", "mail", 0)]
        offered = {(NAMESPACE, "default"): {"mail"}}
        assert levels(fleet.check_waiting(lines, offered, now_ms=NOW)) == [OK]

    def test_lines_are_bounded(self) -> None:
        lines = [WaitingLine(NAMESPACE, "default", f"t-{number}", 0) for number in range(50)]
        assert len(fleet.check_waiting(lines, {}, now_ms=NOW)) == FINDINGS_MAX
