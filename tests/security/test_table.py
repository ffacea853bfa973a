"""The table of security names tests that there are."""

from __future__ import annotations

import pytest

from tests.api.bad_input.test_table import names_in
from tests.security.table import ROWS


@pytest.mark.parametrize("row", ROWS)
def test_every_row_has_tests_that_exist(row: str) -> None:
    assert ROWS[row]
    for each in ROWS[row]:
        path, _, name = each.partition("::")
        assert name in names_in(path), each
