"""A fan-out: its script with progress, and crashes at every point."""

from __future__ import annotations

from examples.thumbnails import Summary, resize, thumbnails
from tenure.testing import TestEngine, assert_survives
from tests.examples.stage import Stage

COUNT = 300
BROKEN = ["holiday/13.jpg"]


def test_the_script_shows_the_progress_and_the_summary(stage: Stage) -> None:
    with stage.worker("thumbnails"):
        *progress, summary = stage.run("thumbnails.py", str(COUNT))
    assert (
        summary
        == f"Summary(images={COUNT}, kilobytes={(COUNT - 1) * 12}, broken=['holiday/13.jpg'])"
    )
    assert all(line.startswith("map:resize: ") for line in progress)


async def test_how_far_it_is_can_be_seen_meanwhile(engine: TestEngine) -> None:
    async with engine.worker([thumbnails]):
        run = await engine.start(thumbnails, "holiday", COUNT)
        await engine.advance("1m")
        (group,) = (await run.describe()).groups
        assert (group.key, group.total, group.open_count) == ("map:resize", COUNT, COUNT)
        async with engine.worker([resize]):
            summary = await engine.advance_until(run.result())
        assert summary == Summary(COUNT, (COUNT - 1) * 12, BROKEN)
        # One step for the images, one for all their sizes, one for the summary.
        assert (await run.describe()).entry_count == 3


async def test_it_survives_a_crash_at_every_point(engine: TestEngine) -> None:
    ended = await assert_survives(thumbnails, "holiday", 5, engine=engine, code=[resize])
    assert ended == Summary(5, 5 * 12, [])
