"""Workers with one version of the code per queue: ``python -m tests.soak.code_worker``."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os

from tenure import Worker
from tests.soak.code_version import VERSIONS, base, courier, drone, sale
from tests.soak.sdk_activity import JOURNAL


async def main(target: str, queues: list[str], *, is_changed: bool) -> None:
    """Work in each queue with the code that runs begin with, or with the changed one."""
    async with asyncio.TaskGroup() as group:
        for queue in queues:
            body = VERSIONS[queue][0] if is_changed else base
            worker = Worker(
                target, workflows=[sale(body), courier, drone], queue=queue, max_concurrent=20
            )
            group.create_task(worker.run(handle_signals=False))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.soak.code_worker")
    parser.add_argument("--target", required=True)
    parser.add_argument("--queues", required=True, help="with commas between them")
    parser.add_argument("--changed", action="store_true")
    parser.add_argument("--journal", required=True)
    said = parser.parse_args()
    os.environ[JOURNAL] = said.journal
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(main(said.target, said.queues.split(","), is_changed=said.changed))
