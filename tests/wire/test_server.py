"""The servers of the scenes are what an operator starts, with settings that only tests have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.scene import SHORT
from tests.wire.server import ServerProcess
from tests.wire.stage import open_stage


async def test_a_server_takes_the_settings_of_a_test() -> None:
    async with open_stage("sqlite", SHORT) as stage:
        server = await stage.server()
        client = await stage.client(server.grpc)
        worker = await stage.worker(server.grpc)
        found = await client.worker(worker.worker_id)
        assert found.lease_duration_ms == SHORT["session_lease_ms"]


@pytest.mark.parametrize("wrong", [{"no_such_thing": 1}, {"lease_least_ms": "soon"}])
async def test_a_setting_that_is_not_one_is_refused(tmp_path: Path, wrong: dict[str, int]) -> None:
    with pytest.raises(RuntimeError, match=r"ended with 2: [\s\S]*--setting"):
        await ServerProcess.start(
            f"sqlite:///{tmp_path / 'tenure.db'}", tmp_path / "server.log", wrong
        )
