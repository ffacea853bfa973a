"""Approval with a timeout: a run waits three days for the manager, then it asks the director.

Start a worker with ``tenure dev expense``; ``python expense.py claim ann 250`` starts a run and
waits; ``python expense.py decide RUN yes`` sends the decision from another terminal.
"""

import asyncio
import sys
from pathlib import Path

import msgspec

from tenure import Client, WorkflowContext, signal, workflow

# A real system sends a message.
INBOX = Path("inbox.txt")


class Claim(msgspec.Struct):
    employee: str
    amount: int


class Decision(msgspec.Struct):
    by: str
    is_approved: bool


decide = signal("decide", Decision)


def ask(person: str, claim: Claim, run_id: str) -> None:
    with INBOX.open("a") as inbox:
        inbox.write(f"{person} {claim.employee} {claim.amount} {run_id}\n")


def pay(claim: Claim) -> str:
    return f"{claim.amount} paid to {claim.employee}"


@workflow(timeout="90d")
async def expense(ctx: WorkflowContext, claim: Claim) -> str:
    await ctx.step(ask, "manager", claim, ctx.info.run_id)
    try:
        decision = await ctx.wait_signal(decide, timeout="3d")
    except TimeoutError:
        await ctx.step(ask, "director", claim, ctx.info.run_id)
        decision = await ctx.wait_signal(decide)
    if not decision.is_approved:
        return f"rejected by {decision.by}"
    return await ctx.step(pay, claim)


async def make_claim(employee: str, amount: int) -> str:
    async with Client() as client:
        run = await client.start(expense, Claim(employee, amount))
        return await run.result()


async def send_decision(run_id: str, *, is_approved: bool) -> None:
    async with Client() as client:
        await client.run_handle(run_id).signal(decide, Decision("boss", is_approved))


if __name__ == "__main__":
    if sys.argv[1] == "claim":
        print(asyncio.run(make_claim(sys.argv[2], int(sys.argv[3]))))
    else:
        asyncio.run(send_decision(sys.argv[2], is_approved=sys.argv[3] == "yes"))
