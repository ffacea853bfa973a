"""``check_journals``: exported journals are tests of the code that has changed since."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tenure import WorkflowContext, workflow
from tenure.sdk.journal_check import journal_file
from tenure.testing import JournalChecker
from tenure.v1.task_pb2 import JournalPage
from tests.sdk.journal_check.journal import recorded, sleep, step


class Parcel(msgspec.Struct):
    item: str
    weight: int = 1


def reserve(item: str) -> Parcel:
    raise AssertionError(item)


@workflow
async def sell(ctx: WorkflowContext, item: str) -> int:
    parcel = await ctx.step(reserve, item)
    await ctx.sleep("1h")
    return parcel.weight


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the journal of a sale."""
    parcel = {"item": "lamp", "weight": 2}
    write(
        tmp_path / "journals" / "sell.json", "sell", step("reserve", 0, parcel), sleep("sleep", 1)
    )
    return tmp_path


def write(file: Path, type: str, *contents: object, **options: object) -> None:
    made = recorded(type, *contents, input={"item": "lamp"}, **options)  # type: ignore[arg-type]
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"".join(journal_file.write(made.run, [JournalPage(entries=made.entries)])))


def test_a_journal_that_fits_passes_with_the_workflows_of_this_module(
    folder: Path, request: pytest.FixtureRequest
) -> None:
    assert JournalChecker(folder, request.module)("journals/*.json") == []
    assert JournalChecker(folder)("**/*.json", [sell]) == []


def test_the_fixture_looks_in_the_root_folder(check_journals: JournalChecker) -> None:
    with pytest.raises(AssertionError, match=r"No journal in /.* matches no/such/\*\.json\."):
        check_journals("no/such/*.json")


def test_a_journal_that_does_not_fit_fails_in_the_words_of_the_check(folder: Path) -> None:
    write(folder / "journals" / "other.json", "sell", step("charge", 0, 1))
    with pytest.raises(AssertionError) as caught:
        JournalChecker(folder)("journals/*.json", [sell])
    words = "other.json: would park: changed at position 1: at 0 the journal has charge (step), "
    assert str(caught.value).startswith(words)
    assert "the code calls reserve (test_journals.py:" in str(caught.value)
    assert "sell.json" not in str(caught.value)


def test_a_workflow_that_is_gone_and_a_file_that_is_none_fail(folder: Path) -> None:
    with pytest.raises(AssertionError, match=r"sell\.json: no such type: the code has no workflow"):
        JournalChecker(folder)("journals/*.json", [])
    (folder / "journals" / "sell.json").write_text("{}")
    with pytest.raises(AssertionError, match=r"sell\.json: it is not an exported journal"):
        JournalChecker(folder)("journals/*.json", [sell])


def test_warnings_are_returned(folder: Path) -> None:
    write(folder / "journals" / "sell.json", "sell", step("reserve", 0, {"item": "lamp"}))
    assert JournalChecker(folder)("journals/*.json", [sell]) == [
        "sell.json: reserve was recorded without weight: the default is used"
    ]
