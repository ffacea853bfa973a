"""A rate-limited API: every refusal is followed by exactly the wait that it asked for."""

from __future__ import annotations

import pytest

from examples import rate_limit
from examples.rate_limit import Answer, Api, fetch
from tenure import Client
from tenure.testing import TestEngine
from tests.examples.stage import Stage
from tests.sdk.guideline.scene import waits_s


async def test_each_attempt_waits_as_it_was_told(
    engine: TestEngine, engine_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = engine.now()

    class TimedApi(Api):
        """The same service, by the clock of the test."""

        def get(self, path: str, now: float) -> Answer:
            del now
            return super().get(path, (engine.now() - begin).total_seconds())

    monkeypatch.setattr(rate_limit, "api", TimedApi())
    async with engine.worker([fetch]):
        handles = await engine_client.enqueue_many(fetch.call(f"/page/{n}") for n in range(5))
        for n, handle in enumerate(handles):
            assert await engine.advance_until(handle.result()) == f"contents of /page/{n}"
        waits = [await waits_s(handle) for handle in handles]
    # One passes at a time, so the five need 0 to 4 waits of 250 ms, in some order.
    assert sorted(map(len, waits)) == [0, 1, 2, 3, 4]
    assert {each for some in waits for each in some} == {0.25}


def test_the_script_gets_all_pages(stage: Stage) -> None:
    with stage.worker("rate_limit"):
        assert stage.run("rate_limit.py") == [f"contents of /page/{n}" for n in range(5)]
