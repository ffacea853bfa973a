"""Named SQL statements, read from the ``.sql`` files of one database.

A statement starts with ``-- name: verb_noun(parameter, ...)`` and uses ``:parameter``, which the
loader turns into the database's numbered form. The order in the header is the order of a call.
``:rows`` means whole rows of parameters, given as one value before the shared parameters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources

import msgspec

_HEADER = re.compile(r"^-- name: (\w+)\(([^)]*)\)$")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")


class StatementPart(msgspec.Struct, frozen=True):
    """One SQL text and how many leading parameters it takes."""

    text: str
    parameter_count: int


class Statement(msgspec.Struct, frozen=True):
    """A named statement. A database that cannot do it in one text has several parts.

    ``takes_rows`` says whether it uses ``:rows``.
    """

    name: str
    parameters: tuple[str, ...]
    parts: tuple[StatementPart, ...]
    takes_rows: bool = False


def load(package: str, *, mark: str) -> Mapping[str, Statement]:
    """Read every ``.sql`` file of ``package``; ``mark`` is ``$`` or ``?``."""
    found: dict[str, Statement] = {}
    files = resources.files(package).iterdir()
    for file in sorted(files, key=lambda each: each.name):
        if file.name.endswith(".sql"):
            for statement in parse(file.read_text("utf-8"), mark=mark):
                assert statement.name not in found
                found[statement.name] = statement
    return found


def parse(text: str, *, mark: str) -> list[Statement]:
    """Return the statements of one file in their order."""
    statements = []
    header: tuple[str, tuple[str, ...]] | None = None
    lines: list[str] = []
    for line in [*text.splitlines(), "-- name: end()"]:
        match = _HEADER.match(line)
        if match is None:
            lines.append(line)
            continue
        if header is not None:
            statements.append(_statement(*header, "\n".join(lines), mark))
        names = tuple(name.strip() for name in match[2].split(",") if name.strip())
        header, lines = (match[1], names), []
    return statements


def _statement(name: str, parameters: tuple[str, ...], body: str, mark: str) -> Statement:
    code = "\n".join(line for line in body.splitlines() if not line.lstrip().startswith("--"))
    parts = tuple(
        _part(text.strip(), parameters, mark) for text in code.split(";\n") if text.strip(" ;\n")
    )
    return Statement(name, parameters, parts, takes_rows=":rows" in code)


def _part(text: str, parameters: tuple[str, ...], mark: str) -> StatementPart:
    names = [match[1] for match in _PARAMETER.finditer(text)]
    if "rows" in names:
        parameters = ("rows", *(each for each in parameters if each in names))
    numbers = {name: index for index, name in enumerate(parameters, 1)}
    used = [numbers[name] for name in names]
    numbered = _PARAMETER.sub(lambda match: f"{mark}{numbers[match[1]]}", text)
    return StatementPart(numbered.rstrip(";"), max(used, default=0))
