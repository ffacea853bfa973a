"""Wait for a person: the activity passes its token on, and somebody completes it days later.

Start a worker with ``tenure dev approval``; ``python approval.py ask 250`` prints the token and
waits; ``python approval.py answer TOKEN yes`` completes the task from another terminal.
"""

import asyncio
import sys
from pathlib import Path

from tenure import ApplicationError, Client, activity

# A real system keeps the token in its database, beside what it is about.
INBOX = Path("approvals.txt")


@activity(schedule_to_close="30d", completes_later=True)
def approve(amount: int) -> bool:
    """Ask for approval; nothing holds a worker while the answer is awaited."""
    info = activity.info()
    with INBOX.open("a") as inbox:
        inbox.write(f"{info.task_id} {amount} {info.token}\n")
    activity.complete_later()


async def ask(amount: int) -> bool:
    async with Client() as client:
        return await client.run(approve, amount)


async def answer(token: str, *, is_approved: bool) -> None:
    async with Client() as client:
        completion = client.completion(token=token)
        if is_approved:
            await completion.complete(True)
        else:
            error = ApplicationError("the amount is too high", type="Declined", non_retryable=True)
            await completion.fail(error)


if __name__ == "__main__":
    if sys.argv[1] == "ask":
        print(asyncio.run(ask(int(sys.argv[2]))))
    else:
        asyncio.run(answer(sys.argv[2], is_approved=sys.argv[3] == "yes"))
