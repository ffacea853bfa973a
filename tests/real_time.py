"""A pytest plug-in: a test in real time that broke while the machine was busy is run again.

Which tests those are, and how long a stall each must bear, is said by one table for folders here,
by the catalog for the long tests, and by ``@pytest.mark.real_time(allows_s=…)`` for a single one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from _pytest.runner import runtestprotocol

from tests.starvation import run_watched

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

# The longest stall that the tests of a folder or file must bear. Most hold leases of 1.5 s or more
# and heartbeats three times as often, or measure what takes half a second.
ALLOWED_S: Final = {
    "api": 0.5,
    "chaos": 0.5,
    "cli": 0.5,
    "examples": 0.5,
    "messages": 0.5,
    "sdk": 0.5,
    "security": 0.5,
    "store/test_batch_locks.py": 0.25,
    "store/test_locks.py": 0.5,
    "store/test_old_primary.py": 0.5,
    "store/test_paused_backend.py": 0.5,
    "testing": 0.5,
    "wire": 0.5,
}
FOLDER: Final = Path(__file__).parent
MARK: Final = "real_time"
# As an outcome of a report: neither passed nor failed.
REPEATED: Final = "repeated"


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line("markers", f"{MARK}(allows_s): judges time; bears stalls up to that")


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Mark what lies in the folders of the table."""
    for item in items:
        allows_s = allowed_s(item.path)
        if allows_s is not None and item.get_closest_marker(MARK) is None:
            item.add_marker(getattr(pytest.mark, MARK)(allows_s=allows_s))


def allowed_s(path: Path) -> float | None:
    """Return how long a stall the tests of a file bear, if they are in real time at all."""
    if not path.is_relative_to(FOLDER):
        return None
    inside = path.relative_to(FOLDER)
    places = (inside, *inside.parents)
    return next((ALLOWED_S[str(each)] for each in places if str(each) in ALLOWED_S), None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a marked test under the canary; only the last try says whether it passed."""
    mark = item.get_closest_marker(MARK)
    if mark is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = run_watched(
        lambda: runtestprotocol(item, log=False, nextitem=nextitem),
        allows_s=mark.kwargs["allows_s"],
        is_broken=lambda found: any(each.failed for each in found),
        say=lambda found, text: _tell(item, found, text),
    )
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _tell(item: pytest.Item, reports: Sequence[pytest.TestReport], text: str) -> None:
    """Report a try that does not count, with what broke."""
    broken = next(each for each in reports if each.failed)
    broken.sections.append((REPEATED, text))
    # pytest shows an outcome that it does not know as pytest_report_teststatus says.
    vars(broken)["outcome"] = REPEATED
    item.ihook.pytest_runtest_logreport(report=broken)


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Show a try that does not count by a letter of its own."""
    if vars(report).get("outcome") != REPEATED:
        return None
    return REPEATED, "R", REPEATED.upper()


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Say what was run again, and why."""
    reports = terminalreporter.getreports(REPEATED)
    if not reports:
        return
    terminalreporter.section("broke on a busy machine, run again")
    for report in reports:
        *_, (_, text) = report.sections
        terminalreporter.write_line(f"{report.nodeid}: {text}")
        terminalreporter.write_line(f"    {_last_line(report)}")


def _last_line(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return report.longreprtext[-200:] if crash is None else crash.message.partition("\n")[0]
