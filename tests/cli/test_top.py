"""``tenure top`` against a real server, printed and on a terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

from tenure.cli.show.keyboard import names
from tenure.cli.show.top_look import TopFrame, TopQueue, TopSchedules, TopWorker, read_metrics
from tenure.cli.show.top_screen import Body, moved, printed
from tests.bounds import WAIT_S
from tests.cli.conftest import Run, invoke, read
from tests.cli.server import CLI, ServerProcess
from tests.cli.terminal import Terminal
from tests.cli.worker import SmallWorker
from tests.polling import eventually_sync

METRICS = """# HELP tenure_build_info The version.
tenure_build_info{version="1.2"} 1.0
tenure_tasks_enqueued_total 7.0
tenure_tasks_finished_total{state="failed"} 1.0
tenure_tasks_finished_total{state="succeeded"} 2.0
tenure_schedules_due 3.0
tenure_schedules_late 2.0
tenure_schedules_broken 1.0
tenure_queue_oldest_waiting_seconds{namespace="default/default",queue="mail"} 1.5
tenure_queue_oldest_waiting_seconds{namespace="acme/default",queue="mail"} 9.0
"""


def test_one_look_shows_queues_workers_and_rates(
    run: Run, server: ServerProcess, queue: str
) -> None:
    with SmallWorker(server.grpc, queue) as worker:
        run("tasks", "enqueue", "gate", "--queue", queue)
        eventually_sync(lambda: _running(run, queue) == 1, "a task runs")
        run("queues", "limit", queue, "5")
        run("tasks", "enqueue", "nobody", "--queue", queue)
        shown = run("top", "--once", "--http", server.http)
        frame = read(run("top", "--once", "--http", server.http, "-o", "json"))
    assert shown.exit_code == 0
    head, rates = shown.stdout.splitlines()[:2]
    assert head.startswith(f"tenure top  {server.grpc} (")
    assert "per second: enqueued " in rates
    assert shown.stdout.splitlines()[2].startswith("schedules due ")
    assert set(frame["schedules"]) == {"due", "late", "broken"}
    assert "-" not in rates
    (found,) = [each for each in frame["queues"] if each["name"] == queue]
    assert (found["pending"], found["running"], found["concurrencyMax"]) == (1, 1, 5)
    (row,) = [line.split() for line in shown.stdout.splitlines() if line.startswith(queue + " ")]
    assert row[:6] == [queue, "1", "1", "0", "ACTIVE", "5"]
    assert f"{worker.worker_id[-8:]}  host:7 " in shown.stdout
    (mine,) = [each for each in frame["workers"] if each["workerId"] == worker.worker_id]
    assert (mine["hostname"], mine["pid"], mine["maxConcurrent"]) == ("host", 7, 2)
    assert (mine["status"], "name" in mine) == ("ONLINE", False)
    assert mine["leaseLeftMs"] > 0
    assert mine["heartbeatAgeMs"] >= 0


def _running(run: Run, queue: str) -> int:
    counts = read(run("queues", "show", queue, "-o", "json"))["counts"]
    return int(counts.get("DISPATCHED", 0)) + int(counts.get("RUNNING", 0))


def test_without_http_there_are_no_rates(run: Run) -> None:
    frame = read(run("top", "--once", "--http", "127.0.0.1:1", "-o", "json"))
    assert "enqueuedPerS" not in frame
    assert "queues" in frame


def test_what_makes_no_sense_is_refused(run: Run) -> None:
    assert run("top", "-o", "json").exit_code == 2
    assert run("top", "--interval", "1ms").exit_code == 2
    assert run("top", "--http", "nowhere").exit_code == 2
    assert run("top", "--once", "--target", "127.0.0.1:1").exit_code == 5


def test_without_a_terminal_each_look_is_printed(server: ServerProcess) -> None:
    environment = {**os.environ, "TENURE_TARGET": server.grpc, "TENURE_HTTP": server.http}
    arguments = [*CLI, "top", "--interval", "100ms", "-o", "jsonl"]
    with subprocess.Popen(
        arguments, text=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        frames = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=WAIT_S)
    assert process.returncode == 130
    assert "enqueuedPerS" not in frames[0]
    assert frames[2]["enqueuedPerS"] >= 0


def test_a_terminal_shows_changes_and_a_server_that_goes_and_comes_back(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tenure.db"
    with ServerProcess(url, tmp_path / "log") as server:
        environment = {"TENURE_TARGET": server.grpc, "TENURE_HTTP": server.http}
        # So long an interval that only hints can bring what is waited for.
        with Terminal("top", "--interval", "10m", env=environment) as terminal:
            place = terminal.until("tenure top", "WORKER")
            invoke("queues", "pause", "letters", env=environment)
            place = terminal.until("letters", "PAUSED", after=place)
            server.kill()
            terminal.until("Refreshing every 600 s.", after=place)
            with ServerProcess(url, tmp_path / "log", grpc=server.grpc, http=server.http):
                invoke("queues", "pause", "parcels", env=environment)
                terminal.until("parcels", after=place)
                eventually_sync(
                    lambda: "Refreshing every" not in terminal.frame, "it listens again"
                )
                assert terminal.interrupt() == 130


def test_a_server_that_goes_is_named_and_tried_again(tmp_path: Path) -> None:
    with ServerProcess(f"sqlite:///{tmp_path}/tenure.db", tmp_path / "log") as server:
        environment = {"TENURE_TARGET": server.grpc, "TENURE_HTTP": server.http}
        with Terminal("top", "--interval", "100ms", env=environment) as terminal:
            place = terminal.until("live tasks 0")
            server.kill()
            terminal.until(f"{server.grpc}", "Trying again.", after=place)
            assert terminal.interrupt() == 130, terminal.said[place:]


def test_rates_and_waiting_times_come_from_the_metrics() -> None:
    found = read_metrics(METRICS, "default/default", 5)
    assert found.version == "1.2"
    assert found.totals == {"enqueued": 7.0, "started": 0.0, "finished": 3.0}
    assert found.oldest_ms == {"mail": 1_500}
    assert found.schedules == TopSchedules(due=3, late=2, broken=1)
    older = read_metrics('tenure_build_info{version="1.1"} 1.0', "default/default", 5)
    assert (older.version, older.schedules) == ("1.1", None)


def test_schedules_that_are_late_or_broken_are_red() -> None:
    found = TopSchedules(due=1_200, late=1, broken=0)
    (line,) = [each for each in printed(_frame(1, schedules=found)) if "due" in each.plain]
    assert line.plain == "schedules due 1,200, late 1, broken 0"
    assert [line.plain[span.start : span.end] for span in line.spans if span.style] == ["late 1"]
    assert not [each for each in printed(_frame(1)) if "schedules" in each.plain]


def _frame(count: int, schedules: TopSchedules | None = None) -> TopFrame:
    queues = [
        TopQueue(name=f"q{n}", pending=1, running=0, others=0, paused=False, concurrency_max=0)
        for n in range(count)
    ]
    workers = [
        TopWorker(
            worker_id=f"w{n}",
            name=f"worker-{n}",
            queue="q",
            status="ONLINE",
            held_count=0,
            max_concurrent=1,
            lease_left_ms=500,
        )
        for n in range(count)
    ]
    return TopFrame(
        target="t",
        namespace="n",
        at="now",
        live_count=0,
        schedules=schedules,
        queues=queues,
        workers=workers,
        has_more_workers=True,
    )


def _window(offset: int, rows: int) -> list[str]:
    body = Body(_frame(20), passed_ms=1_000, width=80)
    return [line.plain.split(" ")[0] for line in body.window(offset, rows)]


def test_a_window_begins_with_the_header_of_its_table() -> None:
    assert _window(0, 4) == ["QUEUE", "q0", "q1", "q2"]
    assert _window(5, 3) == ["QUEUE", "q5", "q6"]
    assert _window(20, 5) == ["QUEUE", "", "ID", "w0", "w1"]
    assert _window(21, 3) == ["", "ID", "w0"]
    assert _window(40, 9) == ["ID", "w18", "w19", "…"]
    body = Body(_frame(20), passed_ms=1_000, width=80)
    assert len(body) == 44
    assert body.window(42, 2)[1].plain == "… and more: tenure workers ls --all"
    assert " over " in body.window(30, 2)[1].plain


def test_keys_move_the_window_and_never_beyond_its_ends() -> None:
    assert [moved(key, 0, 10, 44) for key in ("up", "down", "end", "page down")] == [0, 1, 34, 8]
    assert [moved(key, 34, 10, 44) for key in ("down", "page up", "home", "")] == [34, 26, 0, 34]
    assert moved("", 34, 10, 20) == 10
    assert moved("end", 0, 10, 5) == 0


def test_keys_are_read_as_terminals_send_them() -> None:
    sent = "\x1b[A\x1bOB\x1b[5~\x1b[6~\x1b[1~\x1b[F\x1b[3~xq"
    expected = ["up", "down", "page up", "page down", "home", "end", "quit"]
    assert list(names(sent)) == expected


def test_on_80_by_24_the_keys_scroll_and_q_quits(tmp_path: Path) -> None:
    with ServerProcess(f"sqlite:///{tmp_path}/tenure.db", tmp_path / "log") as server:
        environment = {"TENURE_TARGET": server.grpc, "TENURE_HTTP": server.http}
        for number in range(30):
            invoke("queues", "pause", f"letters-{number:02}", env=environment)
        with (
            SmallWorker(server.grpc, "mail") as worker,
            Terminal("top", "--interval", "10m", env=environment, columns=80, rows=24) as terminal,
        ):
            before = terminal.modes
            place = terminal.until("letters-00", "q quit", "lines 1 to 19 of 34")
            assert all(len(line.rstrip("\r")) <= 80 for line in terminal.frame.split("\n"))
            terminal.press("\x1b[B")
            place = terminal.until("lines 2 to 20 of 34", after=place)
            terminal.press("\x1b[F")
            place = terminal.until("lines 16 to 34 of 34", worker.worker_id[-8:], after=place)
            terminal.press("\x1b[5~")
            place = terminal.until("lines 1 to 19 of 34", after=place)
            terminal.press("\x1b[6~")
            place = terminal.until("lines 16 to 34 of 34", after=place)
            terminal.press("\x1b[H")
            place = terminal.until("lines 1 to 19 of 34", after=place)
            terminal.press("q")
            assert terminal.exit_code() == 0
            assert "Traceback" not in terminal.said
            assert terminal.modes == before


def test_counts_that_stopped_have_a_plus() -> None:
    many = TopQueue(
        name="many",
        pending=10_000,
        running=0,
        others=0,
        is_count_exact=False,
        paused=False,
        concurrency_max=0,
    )
    frame = TopFrame(
        target="t",
        namespace="n",
        at="now",
        live_count=10_000,
        is_live_count_exact=False,
        queues=[many],
        has_more_queues=True,
        workers=[],
    )
    text = "\n".join(line.plain for line in printed(frame))
    assert "live tasks 10,000+ " in text
    assert text.count("10,000+") == 2
    assert "0+" not in text.replace("10,000+", "")
    assert "… and more: tenure queues ls --all" in text
