"""The table names tests that there are."""

from __future__ import annotations

import ast
import functools
from pathlib import Path
from typing import Final

import pytest

import tests
from tests.api.bad_input.table import LATER, ROWS

ROOT: Final = Path(tests.__file__).parent.parent


@functools.cache
def names_in(path: str) -> frozenset[str]:
    """Return the tests of a file."""
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[:5] == "test_"
    )


@pytest.mark.parametrize("row", ROWS)
def test_every_row_has_tests_that_exist(row: str) -> None:
    assert ROWS[row]
    for each in ROWS[row]:
        path, _, name = each.partition("::")
        assert name in names_in(path), each


def test_a_row_is_tested_or_left_for_a_reason() -> None:
    assert not ROWS.keys() & LATER.keys()
    assert all(LATER.values())
