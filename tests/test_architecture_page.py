"""The pages about the architecture: the files that they name exist, and their lists are short."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = [ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/architecture/**/*.md"))]
LISTED_FILES_MAX: Final = 25
LINES_MAX: Final = 300
# CONTRIBUTING names the files of a noun that does not exist.
EXAMPLE: Final = re.compile(r"note(_\w+)?\.\w+$")
_FILE: Final = re.compile(r"`([\w./-]+\.(?:py|sql|proto|md|toml))`")


def _named(text: str) -> Iterator[str]:
    for name in _FILE.findall(text):
        if not EXAMPLE.search(name):
            yield name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    places = (ROOT, ROOT / "src", ROOT / "src/tenure", page.parent)
    missing = [
        name
        for name in _named(page.read_text("utf-8"))
        if not any((place / name).is_file() for place in places)
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_between_pages_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", page.read_text("utf-8"))
    assert [each for each in links if not (page.parent / each).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_short(page: Path) -> None:
    assert len(page.read_text("utf-8").splitlines()) <= LINES_MAX


@pytest.mark.parametrize("title", ["The path of a task", "When a worker is lost"])
def test_a_way_through_the_code_passes_few_files(title: str) -> None:
    page = (ROOT / "docs/architecture/overview.md").read_text("utf-8")
    section = page.partition(f"## {title}\n")[2].partition("\n## ")[0]
    files = set(_named(section))
    assert 10 < len(files) <= LISTED_FILES_MAX
    assert len(re.findall(r"^\d+\. `", section, re.MULTILINE)) <= LISTED_FILES_MAX


def test_the_picture_shows_every_room() -> None:
    page = (ROOT / "docs/architecture/overview.md").read_text("utf-8")
    picture = page.partition("## The rooms")[2].partition("```\n")[2].partition("```")[0]
    source = ROOT / "src/tenure"
    rooms = {
        room.name
        for layer in ("core", "engine", "store", "api", "sdk", "cli")
        for room in (source / layer).iterdir()
        if (room / "__init__.py").exists()
    }
    assert {room for room in rooms if f"{room}/" not in picture} == set()
