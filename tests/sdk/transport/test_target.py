"""Where clients and workers look for their server when nobody says it."""

from __future__ import annotations

import pytest

from tenure import Client, SyncClient, Worker, activity
from tenure.sdk.transport.target import DEFAULT_TARGET


@activity(start_to_close="1s")
def nothing() -> None: ...


async def test_without_a_target_it_is_the_server_of_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TENURE_TARGET", raising=False)
    for made in (Client(), SyncClient(), Worker(activities=[nothing])):
        assert DEFAULT_TARGET in getattr(made, "target", repr(made))


async def test_the_environment_names_the_target_as_for_the_command_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TENURE_TARGET", "db-1:7301,db-2:7301")
    for made in (Client(), SyncClient(), Worker(activities=[nothing])):
        assert "db-1:7301, db-2:7301" in getattr(made, "target", repr(made))


async def test_a_target_that_is_given_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_TARGET", "db-1:7301")
    for made in (Client("a:1"), SyncClient("a:1"), Worker("a:1", activities=[nothing])):
        assert "a:1" in getattr(made, "target", repr(made))


def test_a_wrong_target_in_the_environment_is_refused_with_its_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TENURE_TARGET", "db-1")
    with pytest.raises(ValueError, match="'db-1' has no port"):
        Client()
