"""``/docs``: the whole API on one page without external files, made on the server.

It has no script, and its only style sheet is named by its hash, so that the policy sent with it can
forbid everything else.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import Any, Final

from starlette.responses import HTMLResponse

from tenure.api.http.openapi import Schema
from tenure.api.http.operation import Operation
from tenure.core.access.api_key import Role
from tenure.core.access.permission import allows
from tenure.errors import ERRORS, wire_name

_STYLE: Final = """
body{font:16px/1.5 system-ui,sans-serif;margin:0 auto;max-width:62rem;padding:1rem;color:#1c2128;
background:#fff}
h1{margin-bottom:0}h2{border-bottom:1px solid #ccd2da;margin-top:2.5rem}
h3{font:600 1rem ui-monospace,monospace;margin:1.8rem 0 .3rem}
code,pre{font:14px/1.45 ui-monospace,monospace}
pre{background:#f3f5f8;padding:.7rem;overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.92rem}
td,th{border-bottom:1px solid #e3e7ec;padding:.25rem .5rem;text-align:left;vertical-align:top}
nav a{margin-right:1rem}.m{display:inline-block;min-width:3.6rem;color:#0b5cad}
.q{color:#57606a}
@media(prefers-color-scheme:dark){body{background:#14181d;color:#dde3ea}pre{background:#1f262e}
td,th,h2{border-color:#38424d}.m{color:#6cb2ff}.q{color:#9aa6b2}a{color:#6cb2ff}}
"""
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS: Final = {
    "content-security-policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}
_INTRODUCTION: Final = """
<h1>Tenure</h1><p class="q">HTTP API %s, as <a href="/openapi.json">OpenAPI</a>.</p>
<p>Bodies are JSON in UTF-8; unknown fields are refused. The namespace is the header
<code>Tenure-Namespace</code> or the parameter <code>namespace</code>, else <code>default</code>.
A server with API keys needs <code>Authorization: Bearer tnr_…</code>, except for
<code>/healthz</code> and <code>/readyz</code>.
Instants are RFC 3339 in UTC, durations are milliseconds. Lists return <code>nextPageToken</code>
while there is more. Every answer has <code>X-Request-Id</code>, which is also in the server's
log.</p>
"""


def page(operations: Sequence[Operation], described: Schema) -> HTMLResponse:
    """Return the page for a table of operations and its OpenAPI document."""
    schemas: dict[str, Schema] = described["components"]["schemas"]
    groups = [(name, list(each)) for name, each in groupby(operations, lambda each: each.group)]
    links = "".join(f'<a href="#{_id(name)}">{escape(name)}</a>' for name, _ in groups)
    parts = [
        _INTRODUCTION % escape(described["info"]["version"]),
        f'<nav>{links}<a href="#errors">Errors</a><a href="#types">Types</a></nav>',
    ]
    for name, members in groups:
        parts.append(f'<h2 id="{_id(name)}">{escape(name)}</h2>')
        parts += [
            _operation(each, described["paths"][each.path][each.method.lower()]) for each in members
        ]
    parts += [_errors(), '<h2 id="types">Types</h2>']
    parts += [_type(name, schema) for name, schema in schemas.items()]
    text = "\n".join(parts)
    return HTMLResponse(
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Tenure: HTTP API'
        '</title><meta name="viewport" content="width=device-width"><style>'
        f"{_STYLE}</style></head><body>{text}</body></html>",
        headers=HEADERS,
    )


def _operation(operation: Operation, described: Schema) -> str:
    rows = [
        _row(
            each["name"], f"{each['in']}, {_type_text(each['schema'])}", each.get("description", "")
        )
        for each in described["parameters"]
    ]
    if "requestBody" in described:
        needed = "" if operation.needs_body else ", optional"
        (content,) = described["requestBody"]["content"].values()
        rows.append(_row("body", f"{_type_text(content['schema'])}{needed}", ""))
    for status, response in described["responses"].items():
        (content,) = response["content"].values()
        rows.append(_row(status, _type_text(content.get("schema", {})), response["description"]))
    return (
        f'<h3 id="{_id(operation.name)}"><span class="m">{operation.method}</span>'
        f"{escape(operation.path)}</h3><p>{escape(operation.summary)}"
        f' <span class="q">{escape(_needed(operation))}</span></p>'
        f"<pre>{escape(_curl(operation))}</pre><table>{''.join(rows)}</table>"
    )


def _needed(operation: Operation) -> str:
    """Return which keys may make the call."""
    if operation.has_task_token:
        return "Needs the task token of the attempt; no key does in its place."
    if operation.action is None:
        return "Needs no key."
    roles = [role for role in Role if allows(role, operation.action)]
    whole = ", for all namespaces" if operation.is_whole else ""
    return f"Roles: {', '.join(roles)}{whole}."


def _curl(operation: Operation) -> str:
    """Return the call as one would type it."""
    path = operation.path.replace("{", "$").replace("}", "")
    command = ["curl"]
    if operation.media_type == "text/event-stream":
        command.append("-N")
    if operation.method not in {"GET", "POST"} or (
        operation.method == "POST" and not operation.example
    ):
        command += ["-X", operation.method]
    if operation.example.startswith("{"):
        command += ["-H", "'content-type: application/json'", "-d", f"'{operation.example}'"]
    else:
        path += operation.example
    return " ".join([*command, f'"http://127.0.0.1:7300{path}"'])


def _errors() -> str:
    rows = [
        _row(
            code,
            f"{spec.http_status}{', may be repeated' if spec.is_retryable else ''}",
            " ".join((spec.exception.__doc__ or "").split())
            + "".join(f" [{wire_name(name)}]" for name in spec.exception.field_names),
        )
        for code, spec in ERRORS.items()
    ]
    return (
        '<h2 id="errors">Errors</h2><p>An error is <code>{"error": code, "message": …}</code> with '
        f"the fields in brackets.</p><table>{''.join(rows)}</table>"
    )


def _type(name: str, schema: Schema) -> str:
    required = set(schema.get("required", ()))
    rows = [
        _row(
            field,
            f"{_type_text(each)}{', required' if field in required else ''}",
            each.get("description", ""),
        )
        for field, each in schema.get("properties", {}).items()
    ]
    about = schema.get("description", "")
    head = f'<h3 id="{_id(name)}">{escape(name)}</h3><p>{escape(about)}</p>'
    return f"{head}<table>{''.join(rows)}</table>"


def _row(name: str, type_: str, text: str) -> str:
    return f"<tr><td><code>{escape(name)}</code></td><td>{type_}</td><td>{escape(text)}</td></tr>"


def _type_text(schema: Schema) -> str:
    """Return a schema in words, as HTML; other types are links."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#{_id(name)}">{escape(name)}</a>'
    if "enum" in schema:
        return escape(" | ".join(map(str, schema["enum"])))
    if schema.get("type") == "array":
        return f"list of {_type_text(schema.get('items', {}))}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type_text(schema['additionalProperties'])}"
    return escape(_plain_text(schema))


def _plain_text(schema: Schema) -> str:
    kind: Any = schema.get("type", "any JSON")
    words = [" or ".join(kind) if isinstance(kind, list) else kind]
    words += [str(schema[key]) for key in ("format", "contentEncoding") if key in schema]
    if "minimum" in schema or "maximum" in schema:
        words.append(f"{schema.get('minimum', '')} to {schema.get('maximum', '…')}")
    return " ".join(words)


def _id(name: str) -> str:
    return escape(name.lower().replace(" ", "-"))
