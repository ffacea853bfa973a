"""``/openapi.json``, made from the table of operations and the types of requests and answers."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from tenure.api.http.edge.error import JSON
from tenure.api.http.operation import Operation
from tenure.api.http.parameter import NoQuery
from tenure.api.http.view import ErrorView
from tenure.errors import ERRORS, wire_name

_REF: Final = "#/components/schemas/{name}"
# A call that needs a key may come without one, or with one of another role.
_WITH_KEY: Final = ("unauthenticated", "permission_denied")
# The errors of every request; with a body there are two more.
_ALWAYS: Final = ("invalid_argument", "rate_limited", "unavailable", "deadline_exceeded")
_WITH_BODY: Final = ("payload_too_large", "unsupported_media_type")
_SCHEME: Final = "apiKey"
_TASK_TOKEN: Final = "taskToken"  # noqa: S105 (a name)
Schema = dict[str, Any]


def document(operations: Sequence[Operation], version: str) -> Schema:
    """Return the OpenAPI document of a table of operations."""
    types = _types(operations)
    found, components = msgspec.json.schema_components(types, ref_template=_REF)
    schemas = dict(zip(types, found, strict=True))
    components["ErrorView"] = _error_schema()
    paths: dict[str, dict[str, Schema]] = {}
    for operation in operations:
        described = _describe(operation, schemas)
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tenure",
            "version": version,
            "description": "Durable tasks, and the workers that run them. Instants are RFC 3339 "
            "in UTC. Errors are JSON with a stable code; see ErrorView.",
        },
        "security": [{_SCHEME: []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "securitySchemes": {
                _SCHEME: {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key, tnr_…; not needed if the server never had one.",
                },
                _TASK_TOKEN: {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The task token of one attempt, from its envelope.",
                },
            },
        },
    }


def _types(operations: Sequence[Operation]) -> list[type]:
    wanted: dict[type, None] = {ErrorView: None}
    for operation in operations:
        for each in (operation.body, operation.answer, *operation.events):
            if each is not None:
                wanted[each] = None
    return list(wanted)


def _describe(operation: Operation, schemas: dict[type, Schema]) -> Schema:
    described: Schema = {
        "operationId": operation.name,
        "tags": [operation.group],
        "summary": operation.summary,
        "parameters": [
            *_path_parameters(operation),
            *query_parameters(operation.query),
            *_header_parameters(operation),
        ],
        "responses": _responses(operation, schemas),
    }
    if operation.has_task_token:
        described["security"] = [{_TASK_TOKEN: []}]
    elif operation.action is None:
        described["security"] = []
    if operation.body is not None:
        described["requestBody"] = {
            "required": operation.needs_body,
            "content": {JSON: {"schema": schemas[operation.body]}},
        }
    return described


def _path_parameters(operation: Operation) -> list[Schema]:
    names = [part.strip("{}") for part in operation.path.split("/") if part.startswith("{")]
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in names
    ]


def query_parameters(kind: type[NoQuery]) -> list[Schema]:
    """Return the parameters of a query type."""
    _, components = msgspec.json.schema_components([kind], ref_template=_REF)
    found = []
    for name, schema in components[kind.__name__]["properties"].items():
        described = {key: value for key, value in schema.items() if key != "default"}
        text = described.pop("description", "")
        found.append({"name": name, "in": "query", "description": text, "schema": described})
    return found


def _header_parameters(operation: Operation) -> list[Schema]:
    return [
        {"name": name, "in": "header", "description": text, "schema": {"type": "string"}}
        for name, text in operation.headers.items()
    ]


def _responses(operation: Operation, schemas: dict[type, Schema]) -> dict[str, Schema]:
    responses: dict[str, Schema] = {}
    good = {} if operation.answer is None else {"schema": schemas[operation.answer]}
    content = {operation.media_type: good}
    statuses = {HTTPStatus.OK, operation.status} if operation.may_find else {operation.status}
    for status in sorted(statuses):
        phrase = HTTPStatus(status).phrase
        responses[str(int(status))] = {"description": phrase, "content": content}
    for status, codes in sorted(by_status(operation).items()):
        responses[str(int(status))] = {
            "description": ", ".join(codes),
            "content": {JSON: {"schema": {"$ref": _REF.format(name="ErrorView")}}},
        }
    return responses


def by_status(operation: Operation) -> dict[int, list[str]]:
    """Return the errors that an operation can end with, by their HTTP status."""
    codes = operation.errors + (_WITH_KEY if operation.action is not None else ())
    codes += _ALWAYS + (_WITH_BODY if operation.body is not None else ())
    found: dict[int, list[str]] = {}
    for code in codes:
        found.setdefault(ERRORS[code].http_status, []).append(code)
    # These two have statuses of their own: the request itself is too large or too slow.
    found[HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE] = ["payload_too_large"]
    if operation.body is not None:
        found[HTTPStatus.REQUEST_TIMEOUT] = ["deadline_exceeded"]
    return found


def _error_schema() -> Schema:
    """Return the schema of all errors: each code has its own fields."""
    names = sorted({name for spec in ERRORS.values() for name in spec.exception.field_names})
    return {
        "title": "ErrorView",
        "description": ErrorView.__doc__,
        "type": "object",
        "properties": {
            "error": {"type": "string", "enum": list(ERRORS)},
            "message": {"type": "string"},
            **{wire_name(name): {"type": ["string", "integer"]} for name in names},
        },
        "required": ["error", "message"],
    }
