"""The page of the guide: every guideline has its test, and its code is Python."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
PAGE: Final = (FOLDER.parents[2] / "docs/guide/activity-patterns.md").read_text()


def _tests() -> set[str]:
    """Return the names of all tests of this folder but for those of this file."""
    return {
        node.name.removeprefix("test_")
        for file in FOLDER.glob("test_*.py")
        if file.name != Path(__file__).name
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    }


def test_the_table_names_every_test_and_no_other() -> None:
    table = PAGE.partition("| guideline | test |")[2]
    named = [
        name
        for line in table.splitlines()
        for name in re.findall(r"`([a-z0-9_]+)`", line.rpartition(" | ")[2])
    ]
    assert len(named) == len(set(named))
    assert set(named) == _tests()


def test_the_code_of_the_page_is_python() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) > 5
    for block in blocks:
        compile(block, "activity-patterns.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
