"""The long tests at their small size: what must be true is true, whatever the machine's speed."""

from __future__ import annotations

import pytest

from tests.soak.catalog import SCENARIOS
from tests.soak.result import Scenario

SMALL = [
    pytest.param(
        entry.run, id=name, marks=pytest.mark.real_time(allows_s=entry.allows_s(is_small=True))
    )
    for name, entry in SCENARIOS.items()
]


@pytest.mark.parametrize("scenario", SMALL)
async def test_a_promise_holds_at_its_small_size(scenario: Scenario) -> None:
    results = await scenario(True)  # noqa: FBT003 (small)
    assert results
    for result in results:
        assert result.held is not False, result
