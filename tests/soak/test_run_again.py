"""The runner of the long tests: what the machine broke is run again, what we broke fails."""

from __future__ import annotations

from tests.soak.__main__ import play
from tests.soak.catalog import CatalogEntry, StallLimit
from tests.soak.result import Result
from tests.test_starvation import BUSY, CALM, watches


class Scene:
    """A long test that breaks for a while, in one of two ways."""

    def __init__(self, broken: int, *, raises: bool = False) -> None:
        self._broken = broken
        self._raises = raises
        self.count = 0
        self.said: list[str] = []

    async def __call__(self, _: bool) -> list[Result]:
        self.count += 1
        is_held = self.count > self._broken
        if self._raises and not is_held:
            raise TimeoutError("it did not come")
        return [Result("scene: lost", "none", "3", held=is_held), Result("scene: took", "-", "1 s")]

    def play(self, *stalls: float, is_small: bool = True) -> list[bool | None]:
        entry = CatalogEntry(self.__call__, StallLimit(small_s=0.5, full_s=3.0))
        results = play(
            "scene", entry, is_small=is_small, say=self.said.append, watch=watches(*stalls)
        )
        return [each.held for each in results]


def test_a_promise_that_broke_in_a_stall_is_tried_again_and_that_is_said() -> None:
    scene = Scene(1)
    assert scene.play(BUSY, CALM) == [True, None]
    assert scene.count == 2
    assert scene.said[0].startswith("scene: try 1 of 3 broke while the machine was busy")
    assert scene.said[1:] == ["  scene: lost: promised none, measured 3"]


def test_a_promise_that_broke_on_a_calm_machine_is_broken() -> None:
    scene = Scene(1)
    assert scene.play(CALM) == [False, None]
    assert (scene.count, scene.said) == (1, [])


def test_the_full_size_bears_what_the_small_one_does_not() -> None:
    scene = Scene(1)
    assert scene.play(BUSY, is_small=False) == [False, None]
    assert scene.count == 1


def test_a_test_that_breaks_off_is_a_broken_promise() -> None:
    assert Scene(1, raises=True).play(CALM) == [False]
    scene = Scene(1, raises=True)
    assert scene.play(BUSY, CALM) == [True, None]
    assert "TimeoutError" in scene.said[1]


def test_a_promise_that_broke_three_times_is_broken() -> None:
    scene = Scene(3)
    assert scene.play(BUSY, BUSY) == [False, None]
    assert (scene.count, len(scene.said)) == (3, 4)
