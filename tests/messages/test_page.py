"""The page of messages is what the mistakes give today, and each message helps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.messages.mistake import MISTAKES, SECTIONS, Mistake
from tests.messages.page import HEAD, PAGE, made, row
from tests.messages.scene import Scene

MISTAKES_MIN: Final = 30
ROOT: Final = PAGE.parents[2]
# Names of the protocol, of libraries and of modules of ours, which no user has written.
_INTERNAL: Final = re.compile(
    r"msgspec\.|\$\.|_pb2|grpc\.aio|asyncpg|apsw|tenure\.(sdk|core|engine|api|store|cli)\b|"
    r"(start|schedule|heartbeat)To[A-Z]|startToClose|Traceback"
)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with Scene(tmp_path_factory.mktemp("mistakes")) as made_for_all:
        yield made_for_all


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda each: each.name)
def test_the_page_has_the_message_that_a_mistake_gives_today(
    mistake: Mistake, scene: Scene
) -> None:
    found = made(mistake, scene)
    assert found in PAGE.read_text("utf-8"), f"{found}\nRun python -m tests.messages."
    assert not _INTERNAL.search(found)


def test_the_page_has_every_mistake_once_in_its_section_and_nothing_else() -> None:
    text = PAGE.read_text("utf-8")
    assert text.startswith(HEAD)
    assert len(MISTAKES) >= MISTAKES_MIN
    assert len({each.name for each in MISTAKES}) == len(MISTAKES)
    starts = [row(each, "").rpartition("|  |")[0] for each in _in_order()]
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    rows = [line for line in rows if line != "| mistake | message |"]
    assert len(rows) == len(starts)
    for start, line in zip(starts, rows, strict=True):
        assert line.startswith(start)


@pytest.mark.parametrize("page", ["README.md", "docs/guide/quickstart.md", "docs/guide/client.md"])
def test_the_page_is_linked(page: str) -> None:
    assert "reference/messages.md" in Path(ROOT / page).read_text("utf-8")


def _in_order() -> list[Mistake]:
    return [each for section in SECTIONS for each in MISTAKES if each.section == section]
