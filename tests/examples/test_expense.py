"""Approval with a timeout: by two processes, and over three days with the clock of the kit."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples import expense
from examples.expense import Claim, Decision, decide
from tenure.testing import TestEngine, assert_survives
from tests.examples.stage import Stage
from tests.polling import eventually_sync


@pytest.fixture
def inbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(expense, "INBOX", tmp_path / "inbox.txt")
    return tmp_path / "inbox.txt"


def asked(inbox: Path) -> list[str]:
    """Return who was asked, in the order."""
    return [line.split()[0] for line in inbox.read_text().splitlines()]


@pytest.mark.parametrize(
    ("answer", "said"), [("yes", "250 paid to ann"), ("no", "rejected by boss")]
)
def test_a_decision_from_another_process_ends_the_run(stage: Stage, answer: str, said: str) -> None:
    file = stage.folder / "inbox.txt"
    with stage.worker("expense"), stage.script("expense.py", "claim", "ann", "250") as claim:
        eventually_sync(file.exists)
        eventually_sync(lambda: file.read_text().endswith("\n"))
        person, employee, amount, run_id = file.read_text().split()
        assert (person, employee, amount) == ("manager", "ann", "250")
        stage.run("expense.py", "decide", run_id, answer)
        assert claim.end() == [said]


async def test_after_three_days_the_director_is_asked(engine: TestEngine, inbox: Path) -> None:
    async with engine.worker([expense.expense]):
        run = await engine.start(expense.expense, Claim("ann", 250))
        await engine.advance("2d")
        assert asked(inbox) == ["manager"]
        await engine.advance("30h")
        assert asked(inbox) == ["manager", "director"]
        await run.signal(decide, Decision("cleo", is_approved=True))
        assert await engine.advance_until(run.result()) == "250 paid to ann"


async def test_it_survives_a_crash_at_every_point(engine: TestEngine, inbox: Path) -> None:
    ended = await assert_survives(
        expense.expense,
        Claim("ann", 250),
        engine=engine,
        act=lambda run: run.signal(decide, Decision("bob", is_approved=False)),
    )
    assert ended == "rejected by bob"
    assert set(asked(inbox)) == {"manager"}
