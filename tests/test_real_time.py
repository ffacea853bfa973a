"""The plug-in that runs a test again when the machine was too busy for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import real_time, starvation
from tests.real_time import ALLOWED_S, FOLDER, REPEATED, allowed_s
from tests.test_starvation import BUSY, CALM, watches

TESTS = """
import pytest

@pytest.fixture
def fresh(tmp_path):
    return tmp_path

@pytest.mark.real_time(allows_s=0.5)
def test_of_real_time(fresh):
    tries.append(str(fresh))
    assert len(tries) > {broken}, "the promise"

def test_without_time():
    others.append(1)
    assert len(others) > {other_broken}

tries, others = [], []
"""

UNMARKED = """
tries = []

def test_without_a_mark():
    tries.append(1)
    assert len(tries) > 1
"""


class Inner:
    """A run of pytest on tests that break for a while."""

    def __init__(self, pytester: pytest.Pytester, patch: pytest.MonkeyPatch) -> None:
        self._pytester = pytester
        self._patch = patch

    def run(
        self, *stalls: float, broken: int, other_broken: int = 0, more: tuple[str, ...] = ()
    ) -> pytest.RunResult:
        self._patch.setattr(starvation, "Canary", watches(*stalls))
        self._pytester.makepyfile(TESTS.format(broken=broken, other_broken=other_broken))
        self._pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
        return self._pytester.runpytest_inprocess(
            "-p", "tests.real_time", "--strict-markers", *more
        )


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Inner:
    return Inner(pytester, monkeypatch)


def test_a_test_that_broke_in_a_stall_is_run_again_and_the_output_says_so(inner: Inner) -> None:
    result = inner.run(BUSY, CALM, broken=1)
    assert result.parseoutcomes() == {"passed": 2, REPEATED: 1}
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "*broke on a busy machine, run again*",
            "*::test_of_real_time: try 1 of 3 broke * the canary stood still for 2.00 s *",
            "*AssertionError: the promise",
        ]
    )


def test_a_test_that_broke_on_a_calm_machine_fails_at_once(inner: Inner) -> None:
    result = inner.run(CALM, broken=1)
    assert result.parseoutcomes() == {"passed": 1, "failed": 1}
    result.stdout.no_fnmatch_line("*run again*")


def test_a_test_that_broke_three_times_fails(inner: Inner) -> None:
    result = inner.run(BUSY, BUSY, broken=3)
    assert result.parseoutcomes() == {"passed": 1, "failed": 1, REPEATED: 2}
    assert result.ret == 1


def test_each_try_has_fixtures_of_its_own(inner: Inner) -> None:
    result = inner.run(BUSY, BUSY, broken=3)
    shown = [each for each in result.outlines if "fresh = " in each]
    assert len(shown) == len(set(shown)) == 1
    assert "test_of_real_time2" in shown[0]


def test_a_test_that_is_not_in_real_time_is_never_run_again(inner: Inner) -> None:
    result = inner.run(BUSY, broken=0, other_broken=1)
    assert result.parseoutcomes() == {"passed": 1, "failed": 1}


def test_the_output_says_so_when_processes_share_the_work(
    inner: Inner, pytester: pytest.Pytester
) -> None:
    """Where a test runs is not where the summary is written."""
    conftest = (
        "from tests import starvation\n"
        "from tests.test_starvation import BUSY, CALM, watches\n"
        "starvation.Canary = watches(BUSY, CALM)\n"
    )
    pytester.makeconftest(conftest)
    result = inner.run(broken=1, more=("-n", "1"))
    assert result.parseoutcomes() == {"passed": 2, REPEATED: 1}
    result.stdout.fnmatch_lines(["*::test_of_real_time: try 1 of 3 broke *"])


def test_what_lies_in_a_folder_of_the_table_is_in_real_time(
    inner: Inner, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real_time, "FOLDER", pytester.path)
    folder = pytester.mkdir("wire")
    (folder / "test_unmarked.py").write_text(UNMARKED)
    result = inner.run(CALM, BUSY, CALM, broken=0)
    assert result.parseoutcomes() == {"passed": 3, REPEATED: 1}


@pytest.mark.parametrize("place", ALLOWED_S)
def test_every_place_of_the_table_exists(place: str) -> None:
    assert (FOLDER / place).exists()


def test_the_nearest_place_of_the_table_counts() -> None:
    assert allowed_s(FOLDER / "wire" / "test_proxy.py") == ALLOWED_S["wire"]
    assert allowed_s(FOLDER / "store" / "test_locks.py") == ALLOWED_S["store/test_locks.py"]
    assert allowed_s(FOLDER / "store" / "test_plan.py") is None
    assert allowed_s(FOLDER / "core" / "test_queue.py") is None
    assert allowed_s(Path("/elsewhere/wire/test_proxy.py")) is None


def test_this_very_suite_is_under_the_canary(request: pytest.FixtureRequest) -> None:
    assert request.config.pluginmanager.has_plugin("tests.real_time")
