"""Stored payloads that are damaged: a task is shown without them and says so."""

from __future__ import annotations

from msgspec.structs import replace

from tenure.engine.task import command as c
from tests.api.http.site import Site
from tests.engine.damage import write
from tests.engine.world import NAMESPACE, SPEC

JSON = replace(SPEC, encoding="json")


async def test_a_damaged_output_is_left_out_and_named(site: Site) -> None:
    world, engine = site.world, site.engine
    worker = await world.worker(engine)
    done = await world.held(engine, worker, input=b"[1]", spec=JSON)
    await world.finish(engine, worker, done, output=b"1000000001")
    assert "damaged" not in await site.task(done.id)
    await write(world, "history", done.id, "output", b"9000000001")
    shown = await site.task(done.id)
    assert (shown["state"], shown["damaged"], shown["input"]) == ("SUCCEEDED", ["output"], [1])
    assert "output" not in shown
    assert "outputBase64" not in shown
    waited = await site.call("GET", f"/v1/tasks/{done.id}?waitMs=1000")
    assert waited == shown
    # A list shows no payloads, so it reads none.
    listed = await site.call("GET", "/v1/tasks")
    assert "9000000001" not in str(listed)
    async with site.client.stream("GET", f"/v1/tasks/{done.id}/watch") as answer:
        text = (await answer.aread()).decode()
    assert "event: result" in text
    assert "9000000001" not in text


async def test_a_damaged_input_is_not_copied_to_a_new_task(site: Site) -> None:
    world, engine = site.world, site.engine
    worker = await world.worker(engine)
    done = await world.held(engine, worker, input=b"1000000001")
    await world.finish(engine, worker, done)
    await write(world, "history", done.id, "input", b"9000000001")
    status, code, body = await site.refused("POST", f"/v1/tasks/{done.id}/retry")
    assert (status, code, body["reason"]) == (409, "data_damaged", "input")


async def test_a_task_that_failed_for_its_damaged_input_says_so(site: Site) -> None:
    world, engine = site.world, site.engine
    worker = await world.worker(engine)
    (task_id,) = await world.add(engine, input=b"1000000001")
    await write(world, "tasks", task_id, "input", b"9000000001")
    assert (
        await engine.submit(
            c.ClaimTasks(
                namespace=NAMESPACE,
                worker_id=worker,
                queue="default",
                types=frozenset({"mail"}),
                wait_ms=0,
            )
        )
        == ()
    )
    shown = await site.task(task_id)
    assert (shown["state"], shown["failureReason"]) == ("FAILED", "NON_RETRYABLE")
    assert (shown["error"]["category"], shown["error"]["type"]) == ("DATA_QUALITY", "DataDamaged")
    assert (shown["damaged"], "input" in shown) == (["input"], False)
