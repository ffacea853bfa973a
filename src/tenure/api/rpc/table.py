"""The table of all services, and what each method needs; the boundary uses only this table.

A method that is not in it is refused for everybody; a test checks that none is missing.
"""

from __future__ import annotations

from typing import Final

from tenure.api.rpc.permission import MethodRule, Scope
from tenure.api.rpc.service import (
    admin_service,
    schedule_service,
    session_service,
    task_service,
    workflow_service,
)
from tenure.core.access.permission import Action

# They are closed in this order: workers first.
SERVICES: Final = (
    session_service.SPEC,
    workflow_service.SPEC,
    task_service.SPEC,
    schedule_service.SPEC,
    admin_service.SPEC,
)
RULES: Final[dict[str, MethodRule]] = {
    path: rule
    for each in SERVICES
    for rule, methods in each.rules.items()
    for path in each.paths(methods)
} | {
    # Every role may read.
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": MethodRule(
        Action.READ, Scope.NONE
    )
}
# Exact names.
OPEN_METHODS: Final = frozenset(
    (
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/Watch",
        *(path for each in SERVICES for path in each.paths(each.open_methods)),
    )
)
# With the names by which they are counted.
NEW_WORK: Final = {
    path: path.rpartition("/")[2] for each in SERVICES for path in each.paths(each.new_work)
}
# What a method is asked with; errors name its fields. Methods have names of their own.
REQUESTS: Final = {
    method.name: method.input_type for each in SERVICES for method in each.descriptor.methods
}
