"""Tables on narrow terminals: columns are left out by importance, and ids are never cut."""

from __future__ import annotations

from typing import Final, NamedTuple

from rich.console import Console

from tenure.cli.show.table import Column, Layout

ID: Final = "01981c9e-7d1c-7c43-9a3e-0d2b6f2f9f10"


class Item(NamedTuple):
    """Something to list."""

    id: str = ID
    name: str = "resize"
    state: str = "RUNNING"
    version: str = "1.4.2"
    note: str = ""


COLUMNS: Final = (
    Column[Item]("TASK", lambda item: item.id),
    Column[Item]("NAME", lambda item: item.name, rank=1, is_text=True),
    Column[Item]("VERSION", lambda item: item.version, rank=3),
    Column[Item]("STATE", lambda item: item.state),
    Column[Item]("NOTE", lambda item: item.note, rank=2, is_text=True),
)


def shown(width: int, *items: Item, columns: tuple[Column[Item], ...] = COLUMNS) -> list[str]:
    layout = Layout(columns, items or [Item()], width)
    console = Console(width=width, force_terminal=False)
    with console.capture() as captured:
        for line in (layout.header, *map(layout.row, items or [Item()])):
            console.print(line)
    return [line.rstrip() for line in captured.get().splitlines()]


def test_a_wide_terminal_shows_every_column() -> None:
    header, row = shown(120)
    assert header.split() == ["TASK", "NAME", "VERSION", "STATE", "NOTE"]
    assert row.split() == [ID, "resize", "1.4.2", "RUNNING", "-"]


def test_the_least_important_column_is_left_out_first() -> None:
    header, row = shown(62)
    assert header.split() == ["TASK", "NAME", "STATE", "NOTE"]
    assert row.split() == [ID, "resize", "RUNNING", "-"]
    assert Layout(COLUMNS, [Item()], 62).hidden == ["VERSION"]
    assert Layout(COLUMNS, [Item()], 48).hidden == ["NAME", "VERSION", "NOTE"]


def test_what_is_not_text_is_never_cut() -> None:
    header, row = shown(50, Item(name="n" * 60, note="m" * 200))
    assert header.split() == ["TASK", "STATE"]
    assert row.split() == [ID, "RUNNING"]


def test_text_is_cut_and_the_important_one_gets_the_room() -> None:
    _, row = shown(80, Item(name="n" * 14, note="m" * 200))
    assert row.split() == [ID, "n" * 14, "RUNNING", "m" * 16 + "…"]
    assert len(row) == 80


def test_ids_become_short_before_a_column_is_left_out() -> None:
    columns = (
        Column[Item]("TASK", lambda item: item.id, short=lambda item: item.id[-8:]),
        *COLUMNS[1:],
    )
    assert shown(120, columns=columns)[1].startswith(f"{ID}  resize")
    header, row = shown(60, columns=columns)
    assert header.split() == ["TASK", "NAME", "VERSION", "STATE", "NOTE"]
    assert row.startswith("6f2f9f10  resize")


def test_wide_characters_take_two_places() -> None:
    first, second = shown(80, Item(name="日本"), Item(name="abcd"))[1:]
    assert first.index("1.4.2") + 2 == second.index("1.4.2")
