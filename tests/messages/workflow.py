"""Mistakes with workflows: where they are declared, started, and in their code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tenure import SyncClient, Worker, WorkflowContext, workflow
from tests.bounds import WAIT_S
from tests.messages import app
from tests.messages.mistake import mistake, raised
from tests.messages.scene import Scene

_SECTION = "Workflows"
# The mistakes are those that a type checker finds, too.
declare: Any = workflow
sell: Any = app.sell
greet: Any = app.greet


def _started(scene: Scene, made: Any, *arguments: object) -> str:
    return raised(lambda: scene.client.start(made, *arguments))


def _failed(scene: Scene, made: Any) -> str:
    """Return how a run of the application fails."""
    scene.started_worker()
    return raised(lambda: scene.client.start(made).result(timeout=WAIT_S))


@mistake(_SECTION, "A function without `async`", "@workflow def sell(ctx: WorkflowContext): …")
def no_async(_: Scene) -> str:
    def sell(ctx: WorkflowContext) -> None: ...

    return raised(lambda: declare(sell))


@mistake(_SECTION, "A function that yields", "@workflow def sell(ctx): yield …")
def generator(_: Scene) -> str:
    def sell(_ctx: object) -> Iterator[int]:
        yield 1

    return raised(lambda: declare(sell))


@mistake(_SECTION, "No context", "@workflow async def sell(): …")
def no_context(_: Scene) -> str:
    async def sell() -> None: ...

    return raised(lambda: declare(sell))


@mistake(_SECTION, "A timeout of activities", '@workflow(start_to_close="30s")')
def other_timeout(_: Scene) -> str:
    async def sell(ctx: object) -> None: ...

    return raised(lambda: declare(start_to_close="30s")(sell))


@mistake(_SECTION, "An activity is started", 'client.start(greet, "Ann")')
def start_activity(scene: Scene) -> str:
    return _started(scene, greet, "Ann")


@mistake(_SECTION, "A workflow is enqueued", 'client.run(sell, "lamp")')
def enqueue_workflow(scene: Scene) -> str:
    client: Any = scene.client
    return raised(lambda: client.run(sell, "lamp"))


@mistake(_SECTION, "An argument of another type", "client.start(sell, 7)")
def other_type(scene: Scene) -> str:
    return _started(scene, sell, 7)


@mistake(_SECTION, "A workflow among the activities", "Worker(activities=[sell])")
def workflow_as_activity(_: Scene) -> str:
    return raised(lambda: Worker(activities=[sell]))


@mistake(_SECTION, "A signal of another type", 'run.signal(decide, "yes")')
def other_signal(scene: Scene) -> str:
    run: Any = scene.client.start(app.sell.with_options(queue="nobody"), "lamp")
    return raised(lambda: run.signal(app.decide, "yes"))


@mistake(_SECTION, "A signal to a run that has ended", "run.signal(decide, True)")
def late_signal(scene: Scene) -> str:
    run = scene.client.start(app.sell.with_options(queue="nobody"), "lamp")
    run.terminate()
    return raised(lambda: run.signal(app.decide, True))  # noqa: FBT003 (its value)


@mistake(_SECTION, "An id that is no id", 'client.run_handle("order-1")')
def bad_run_id(_: Scene) -> str:
    with SyncClient() as client:
        return raised(lambda: client.run_handle("order-1"))


@mistake(_SECTION, "A function is called where it is named", "await ctx.step(pack(item))")
def called_step(scene: Scene) -> str:
    return _failed(scene, app.call_too_early)


@mistake(_SECTION, "A step without a name", "await ctx.step(lambda: 7)")
def nameless_step(scene: Scene) -> str:
    return _failed(scene, app.use_a_lambda)


@mistake(_SECTION, "The context in a step", "ctx.set_state(…) in a step")
def context_in_step(scene: Scene) -> str:
    return _failed(scene, app.leak_the_context)


@mistake(_SECTION, "A sleep that blocks", "time.sleep(1)")
def blocking_sleep(scene: Scene) -> str:
    return _failed(scene, app.block)


@mistake(_SECTION, "A sleep that blocks, in a plain function", "time.sleep(1)")
def blocking_sleep_in_plain(scene: Scene) -> str:
    return _failed(scene, app.block_plainly)
