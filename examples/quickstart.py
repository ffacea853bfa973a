"""A task from end to end: ``tenure dev quickstart`` and, elsewhere, ``python quickstart.py``."""

import asyncio

from tenure import Client, activity


@activity(start_to_close="30s")
async def greet(name: str) -> str:
    return f"Hello, {name}!"


async def main() -> None:
    async with Client() as client:
        print(await client.run(greet, "world"))


if __name__ == "__main__":
    asyncio.run(main())
