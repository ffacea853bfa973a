"""What each role may do."""

from __future__ import annotations

import pytest

from tenure.core.access.api_key import Role
from tenure.core.access.permission import PERMISSIONS, Action, allows

EXPECTED = {
    Role.VIEWER: {Action.READ},
    Role.CLIENT: {Action.READ, Action.SUBMIT},
    Role.WORKER: {Action.READ, Action.WORK},
    Role.ADMIN: {Action.READ, Action.SUBMIT, Action.WORK, Action.OPERATE, Action.ADMIN},
}


def test_every_role_has_its_permissions() -> None:
    assert PERMISSIONS.keys() == set(Role)


@pytest.mark.parametrize("action", Action)
@pytest.mark.parametrize("role", Role)
def test_a_role_may_do_what_the_table_says_and_nothing_else(role: Role, action: Action) -> None:
    assert allows(role, action) is (action in EXPECTED[role])
