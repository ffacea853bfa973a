"""The long tests at their small size: what must be true is true, whatever the machine's speed."""

from __future__ import annotations

import pytest

from tests.soak.catalog import SCENARIOS
from tests.soak.result import Scenario


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
async def test_a_promise_holds_at_its_small_size(scenario: Scenario) -> None:
    results = await scenario(True)  # noqa: FBT003 (small)
    assert results
    for result in results:
        assert result.held is not False, result
