"""Looks through the bodies of workflows and the helpers of their files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from tenure.sdk.body_lint.body import BodyReader
from tenure.sdk.body_lint.names import FileNames, Function
from tenure.sdk.body_lint.rule import Rule
from tenure.sdk.workflow.definition import Workflow

_SILENCED: Final = re.compile(r"#\s*tenure:\s*ok\b")


class LintFinding(msgspec.Struct, frozen=True, order=True):
    """Something in a workflow that may come out differently the next time."""

    file: str
    line: int
    rule: str
    what: str
    instead: str
    workflow: str
    function: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line} in {self.function}"
        return f"{where} {self.what}: {self.instead} ({self.rule})"


def lint(workflows: Iterable[Workflow[..., Any]]) -> list[LintFinding]:
    """Return what was found, by file and line; helpers of the same file are followed."""
    files: dict[str, _File | None] = {}
    found: set[LintFinding] = set()
    for workflow in workflows:
        code = workflow.function.__code__
        if code.co_filename not in files:
            files[code.co_filename] = _read(code.co_filename)
        file = files[code.co_filename]
        function = None if file is None else file.function(code.co_name, code.co_firstlineno)
        if file is not None and function is not None:
            found |= set(file.findings(workflow, function))
    # A helper of several workflows is told once.
    once = {(each.file, each.line, each.what): each for each in sorted(found, reverse=True)}
    return sorted(once.values())


class _File:
    """The source of a module."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._lines = text.splitlines()
        self._tree = ast.parse(text)
        self._names = FileNames(self._tree)

    def function(self, name: str, first_line: int) -> Function | None:
        """Return the function at a line; that of its first decorator, if it has one."""
        for each in ast.walk(self._tree):
            if isinstance(each, ast.AsyncFunctionDef | ast.FunctionDef) and each.name == name:
                lines = [each.lineno, *(mark.lineno for mark in each.decorator_list)]
                if first_line in lines:
                    return each
        return None

    def findings(self, workflow: Workflow[..., Any], function: Function) -> Iterable[LintFinding]:
        """Yield what is in a function, and in those of this file that it calls."""
        left, seen = [function], {function.name}
        while left:
            reader = BodyReader(self._names, left[0])
            name = left.pop(0).name
            for flaw in reader.flaws():
                if not self._is_silenced(flaw.node):
                    yield LintFinding(
                        file=str(self._path),
                        line=flaw.node.lineno,
                        rule=flaw.rule.name,
                        what=flaw.what,
                        instead=_instead(flaw.rule, is_async=workflow.is_async),
                        workflow=workflow.name,
                        function=name,
                    )
            for called in reader.called:
                if called not in seen:
                    seen.add(called)
                    left.append(self._names.functions[called])

    def _is_silenced(self, node: ast.expr | ast.stmt) -> bool:
        return bool(_SILENCED.search(self._lines[node.lineno - 1]))


def _instead(rule: Rule, *, is_async: bool) -> str:
    """Return what to write; a plain function has no ``await``."""
    return rule.instead if is_async else rule.instead.replace("await ", "")


def _read(name: str) -> _File | None:
    path = Path(name)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        # Code that was made by other code has no file.
        return None
    here = Path.cwd()
    return _File(path.relative_to(here) if path.is_relative_to(here) else path, text)
