"""What each role may do: one table for every edge."""

import enum
from typing import Final

from tenure.core.access.api_key import Role


class Action(enum.StrEnum):
    """A kind of call.

    ``SUBMIT`` is for those who want work done: enqueue, cancel, pause, resume, retry, terminate,
    and complete or heartbeat by id. ``WORK`` is what workers say of themselves and of what they
    hold. ``OPERATE`` is drain, evict and the brakes of queues. ``ADMIN`` is keys, namespaces, the
    audit log and diagnosis.
    """

    READ = "read"
    SUBMIT = "submit"
    WORK = "work"
    OPERATE = "operate"
    ADMIN = "admin"


PERMISSIONS: Final[dict[Role, frozenset[Action]]] = {
    Role.VIEWER: frozenset({Action.READ}),
    Role.CLIENT: frozenset({Action.READ, Action.SUBMIT}),
    Role.WORKER: frozenset({Action.READ, Action.WORK}),
    Role.ADMIN: frozenset(Action),
}


def allows(role: Role, action: Action) -> bool:
    """Tell whether a role may do something."""
    return action in PERMISSIONS[role]
