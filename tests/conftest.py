"""Fixtures for all tests, and the look at what each of them has logged."""

from collections.abc import Generator

import pytest
import structlog

from tests.postgres import PostgresServer, shared
from tests.secret_scan import leaks

pytest_plugins = ["pytester", "tests.real_time"]

# As the logs of a server: without the values of local variables, which structlog shows by default.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)


@pytest.fixture(scope="session")
def postgres() -> PostgresServer:
    """Return the PostgreSQL server of this test process; each test makes its own database."""
    return shared()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that leaves a secret in what was logged or printed while it ran."""
    report = yield
    if report.when == "teardown" and report.passed:
        found = leaks(text for _, text in report.sections)
        if found:
            report.outcome = "failed"
            report.longrepr = "A secret was logged or printed:\n" + "\n".join(found)
    return report
