"""What each role may do: one table for every edge."""

import enum
from typing import Final

from tenure.core.access.api_key import Role


class Action(enum.StrEnum):
    """A kind of call.

    ``SUBMIT`` is for clients: enqueue, cancel, pause, resume, retry, terminate, and complete or
    heartbeat by id. ``WORK`` is what workers report about themselves and their attempts.
    ``OPERATE`` is drain, evict, and pause and limit of queues. ``ADMIN`` is keys, namespaces, the
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
    """Return whether a role may do something."""
    return action in PERMISSIONS[role]
