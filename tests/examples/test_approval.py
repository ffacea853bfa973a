"""Human approval: the token is read from the file, and one answer says yes, the other one no."""

from __future__ import annotations

import signal

from tenure import SyncClient
from tests.cli.command_process import CommandProcess
from tests.examples.stage import Script, Stage
from tests.polling import eventually_sync


def inbox(stage: Stage) -> dict[str, str]:
    """Return the tokens that were written down, by amount."""
    file = stage.folder / "approvals.txt"
    lines = file.read_text().splitlines() if file.exists() else []
    return {amount: token for _, amount, token in (line.split() for line in lines)}


def test_a_person_approves_one_request_and_declines_another(
    stage: Stage, client: SyncClient
) -> None:
    with (
        stage.worker("approval"),
        stage.script("approval.py", "ask", "250") as small,
        stage.script("approval.py", "ask", "9000") as large,
    ):
        eventually_sync(lambda: len(inbox(stage)) == 2)
        _waits(small, large)
        stage.run("approval.py", "answer", inbox(stage)["250"], "yes")
        assert small.end() == ["True"]
        stage.run("approval.py", "answer", inbox(stage)["9000"], "no")
        assert large.process.wait() == 1
        assert "failed and is not retried: Declined: the amount is too high" in large.lines[-1]
    assert [each.attempt for each in client.list(type="approve")] == [1, 1]


def test_the_answer_may_come_when_no_worker_is_there(stage: Stage) -> None:
    with stage.worker("approval") as worker, stage.script("approval.py", "ask", "7") as script:
        eventually_sync(lambda: inbox(stage))
        _stop(worker)
        stage.run("approval.py", "answer", inbox(stage)["7"], "yes")
        assert script.end() == ["True"]


def test_a_wrong_token_is_refused_with_what_is_wrong(stage: Stage) -> None:
    with stage.script("approval.py", "answer", "no-token", "yes") as script:
        assert script.process.wait() == 1
        assert "InvalidToken" in script.lines[-1]


def _stop(worker: CommandProcess) -> None:
    worker.send(signal.SIGTERM)
    assert worker.exit_code() == 0


def _waits(*scripts: Script) -> None:
    for script in scripts:
        assert script.process.poll() is None, script.lines
