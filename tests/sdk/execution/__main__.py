"""A program that is killed while a child process of it works: ``python -m … mark``."""

from __future__ import annotations

import asyncio
import sys

from tests.sdk.execution import process_activities as on
from tests.sdk.execution.rig import Rig


async def main() -> None:
    async with Rig(on.wait) as rig:
        await rig.run(on.wait, sys.argv[1])


if __name__ == "__main__":
    asyncio.run(main())
