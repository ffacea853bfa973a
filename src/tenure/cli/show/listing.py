"""Lists: one page, or all of them, read as far as somebody looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from tenure.cli.parameter import PageOptions
from tenure.cli.show.output import Output
from tenure.cli.show.table import Column
from tenure.core.limits import PAGE_SIZE_MAX

T = TypeVar("T")


class Listing(Generic[T]):
    """A list by its name in JSON, the command that shows it, and how to read a page of it."""

    def __init__(
        self, name: str, command: str, read: Callable[[str, int], tuple[list[T], str]]
    ) -> None:
        """Read with ``read(page_token, limit)``, which returns items and the next token."""
        self.name = name
        self.command = command
        self.read = read


class _Reader(Generic[T]):
    """Reads pages while items are wanted, and keeps the token of what was not read."""

    def __init__(self, listing: Listing[T], options: PageOptions) -> None:
        self._listing = listing
        self._left = None if options["is_all"] else options["limit"]
        self.token = options["page_token"]

    def __iter__(self) -> Iterator[T]:
        while True:
            size = PAGE_SIZE_MAX if self._left is None else min(self._left, PAGE_SIZE_MAX)
            items, self.token = self._listing.read(self.token, size)
            yield from items
            if self._left is not None:
                self._left -= len(items)
            if not self.token or self._left == 0:
                return


def read(listing: Listing[T], options: PageOptions) -> Iterator[T]:
    """Return the items of a list, page by page as they are taken."""
    return iter(_Reader(listing, options))


def show(
    output: Output,
    listing: Listing[T],
    options: PageOptions,
    columns: Callable[[], Sequence[Column[T]]],
) -> None:
    """Write a list in the form that was asked for."""
    reader = _Reader(listing, options)
    if output.form == "jsonl":
        for item in reader:
            output.write(item)
        return
    items = list(reader)
    if output.form == "json":
        token = {"nextPageToken": reader.token} if reader.token else {}
        output.write({listing.name: items, **token})
        return
    if items:
        output.table(columns(), items)
    else:
        output.note(f"No {listing.name} found.")
    if reader.token:
        output.note(
            f"There are more. Next page: {listing.command} --page-token {reader.token}. All: --all."
        )
