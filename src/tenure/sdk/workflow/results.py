"""The results of a map, read in pages, in the body and in the steps that get them."""

from __future__ import annotations

import asyncio
import builtins
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from tenure.sdk.failure import TaskFailed
from tenure.sdk.payload import PayloadError, UserValue
from tenure.sdk.workflow import journal as recorded
from tenure.sdk.workflow.journal import Entry, Mismatch

if TYPE_CHECKING:
    from tenure.sdk.workflow.child import ChildTask
    from tenure.sdk.workflow.loop import RunFuture, RunLoop
    from tenure.sdk.workflow.port import RunPort

R_co = TypeVar("R_co", covariant=True)


Page = list[Entry]
"""Results of a group in the order of its items."""


class Results(Generic[R_co]):
    """What the items of a map have returned; pages are read when they are asked for.

    >>> done = await ctx.map(resize, images, on_error="collect")
    >>> async for image, thumbnail in done:
    ...     ...

    With ``on_error="collect"`` the value of an item that failed is its ``TaskFailed``. A step may
    take the results as an argument, and reads them there: also with a plain ``for``, if it is not
    async.
    """

    def __init__(
        self, pages: GroupPages, key: str, items: Sequence[Any], task: ChildTask, failed: int
    ) -> None:
        """Use ``ctx.map`` instead."""
        self._pages = pages
        self._key = key
        self._items = items
        self._task = task
        self.total = len(items)
        """How many items there were."""
        self.failed = failed
        """How many of them failed or were cancelled."""

    def __repr__(self) -> str:
        return f"<results of {self._key}: {self.succeeded} of {self.total} succeeded>"

    @property
    def succeeded(self) -> int:
        """How many items succeeded."""
        return self.total - self.failed

    async def __aiter__(self) -> AsyncIterator[tuple[Any, R_co]]:
        """Iterate over items and their values, in the order of the items."""
        after = 0
        while after < self.total:
            page = await self._pages.read(self._key, after)
            for entry in self._checked(page, after):
                yield self._items[entry.pos - 1], self._value(entry)
            after += len(page)

    async def read(self, after: int) -> builtins.list[tuple[Any, R_co]]:
        """Return the next items and their values, behind the first ``after`` of them."""
        page = await self._pages.read(self._key, after)
        entries = self._checked(page, after)
        return [(self._items[entry.pos - 1], self._value(entry)) for entry in entries]

    def __iter__(self) -> Iterator[tuple[Any, R_co]]:
        """Iterate in the same way in a step that is a plain function."""
        after = 0
        while after < self.total:
            page = self._pages.read_blocking(self._key, after)
            for entry in self._checked(page, after):
                yield self._items[entry.pos - 1], self._value(entry)
            after += len(page)

    async def list(self) -> list[R_co]:
        """Return all values, in the order of the items.

        >>> thumbnails = await done.list()
        """
        return [value async for _, value in self]

    def _checked(self, page: Page, after: int) -> Page:
        """Return a page of which nothing is missing: every item has ended."""
        if not page or page[-1].pos != after + len(page):
            message = f"The server does not have all results of {self._key} behind item {after}."
            raise RuntimeError(message)
        return page

    def _value(self, entry: Entry) -> UserValue:
        try:
            return self._task.outcome(entry, self._pages.run.converter)
        except TaskFailed as error:
            return error
        except PayloadError as error:
            return self._pages.unreadable(self._key, entry, error)


class PageReader(Protocol):
    """The run whose groups are read."""

    loop: RunLoop
    converter: Any

    def wake(self) -> None:
        """Have the run go on soon."""
        ...

    def check_place(self) -> None:
        """Raise if nothing may be called now."""
        ...

    def end_body(self, mismatch: Mismatch) -> BaseException:
        """End the body, because what was recorded does not fit; return what to raise."""
        ...


_Place = tuple[str, int]
"""A group by its key, and the position behind which it is read."""


class GroupPages:
    """Reads results of groups.

    A body gets its pages in the order in which it asks, and nothing else is delivered to it before.
    So a page, which is not recorded, comes at the same place on each re-run. Steps get theirs at
    any time.
    """

    def __init__(self, port: RunPort, run: PageReader) -> None:
        """Read for a run."""
        self.run = run
        self._port = port
        self._asked: deque[tuple[_Place, RunFuture[Page]]] = deque()
        self._here: dict[_Place, Page] = {}
        self._outside: dict[_Place, list[Future[Page]]] = {}
        # The page that the body waits for and that was asked for.
        self._fetched: _Place | None = None
        self._is_closed = False

    async def read(self, key: str, after: int) -> Page:
        """Return a page, in the body or in a step that is async."""
        if self.run.loop.is_running():
            self.run.check_place()
            future: RunFuture[Page] = self.run.loop.create_future()
            self._asked.append(((key, after), future))
            return await future
        return await asyncio.wrap_future(self._ask_outside(key, after))

    def read_blocking(self, key: str, after: int) -> Page:
        """Return a page in a step that has a thread for itself."""
        # The body's loop counts as well.
        if asyncio._get_running_loop() is not None:  # noqa: SLF001 (documented)
            raise TypeError("results are read with async for here, or await results.list()")
        return self._ask_outside(key, after).result()

    def unreadable(self, key: str, entry: Entry, error: PayloadError) -> UserValue:
        """Raise for a value that does not fit: in the body, that parks the run."""
        if not self.run.loop.is_running():
            raise error
        mismatch = recorded.unreadable(entry, error, f"item {entry.pos - 1} of {key}")
        raise self.run.end_body(mismatch) from error

    def deliver(self) -> bool | None:
        """Give the body the page that it has asked for first.

        None: it asked for nothing. False: the page is not here yet.
        """
        while self._asked and self._asked[0][1].done():
            self._asked.popleft()
        if not self._asked:
            return None
        place, future = self._asked[0]
        page = self._here.pop(place, None)
        if page is None:
            if self._fetched != place:
                self._fetched = place
                self._port.fetch_group(*place)
            return False
        self._fetched = None
        self._asked.popleft()
        future.set_result(page)
        return True

    def take(self, key: str, after: int, page: Page) -> None:
        """Take a page that the server has sent."""
        place = key, after
        for future in self._outside.pop(place, ()):
            if not future.done():
                future.set_result(page)
        if place == self._fetched:
            self._here[place] = page
            self.run.wake()

    def fetch_again(self) -> None:
        """Ask again for the pages that are not here."""
        places = set(self._outside)
        if self._fetched is not None:
            places.add(self._fetched)
        for place in places:
            self._port.fetch_group(*place)

    def close(self) -> None:
        """Let nobody wait any more."""
        self._is_closed = True
        for waiting in self._outside.values():
            _fail(waiting)
        self._outside.clear()

    def _ask_outside(self, key: str, after: int) -> Future[Page]:
        future: Future[Page] = Future()
        self._port.post(self._begin((key, after), future))
        return future

    def _begin(self, place: _Place, future: Future[Page]) -> Callable[[], None]:
        def begin() -> None:
            if self._is_closed:
                _fail([future])
                return
            self._outside.setdefault(place, []).append(future)
            self._port.fetch_group(*place)

        return begin


def _fail(waiting: list[Future[Page]]) -> None:
    for future in waiting:
        if not future.done():
            future.set_exception(RuntimeError("the run of these results is no longer here"))
