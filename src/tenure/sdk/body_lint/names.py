"""What names mean in a file: modules, functions of modules, and what the file defines itself."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from typing import Final

Function = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_BUILTINS: Final = frozenset(dir(builtins))


class FileNames:
    """The names of a module: imports, functions, and variables."""

    def __init__(self, tree: ast.Module) -> None:
        """Read the top level of a file; branches such as ``if TYPE_CHECKING`` count too."""
        self.imports = dict(_imports(tree.body))
        self.functions = {
            each.name: each for each in _statements(tree.body) if isinstance(each, _FUNCTIONS)
        }
        self.variables = {
            name
            for each in _statements(tree.body)
            if isinstance(each, ast.Assign | ast.AnnAssign | ast.AugAssign)
            for name in _targets(each)
        }


class LocalNames:
    """The names inside of a function: its own win over those of its file."""

    def __init__(self, file: FileNames, function: Function) -> None:
        """Look through the parameters, the assignments and the imports of a function."""
        self.file = file
        self.globals = {
            name
            for each in ast.walk(function)
            if isinstance(each, ast.Global)
            for name in each.names
        }
        self._imports = {**file.imports, **dict(_imports(function.body))}
        arguments = {each.arg for each in ast.walk(function) if isinstance(each, ast.arg)}
        stored = {
            each.id
            for each in ast.walk(function)
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
        }
        self._own = (arguments | stored) - self.globals

    def full_name(self, node: ast.expr) -> str:
        """Return ``module.function`` for what an expression names; empty if that is not known."""
        if isinstance(node, ast.Attribute):
            owner = self.full_name(node.value)
            return f"{owner}.{node.attr}" if owner else ""
        if not isinstance(node, ast.Name) or node.id in self._own:
            return ""
        if node.id in self._imports:
            return self._imports[node.id]
        is_defined = node.id in self.file.functions or node.id in self.file.variables
        return f"builtins.{node.id}" if node.id in _BUILTINS and not is_defined else ""

    def is_global(self, name: str) -> bool:
        """Tell whether a name is a variable of the file."""
        return name in self.globals or (name in self.file.variables and name not in self._own)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements of a level, also those in its branches."""
    for each in body:
        yield each
        for name in ("body", "orelse", "finalbody"):
            if not isinstance(each, (*_FUNCTIONS, ast.ClassDef)):
                yield from _statements(getattr(each, name, []))


def _imports(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for each in _statements(body):
        if isinstance(each, ast.Import):
            for alias in each.names:
                top = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (top, top)
        elif isinstance(each, ast.ImportFrom) and each.module and not each.level:
            for alias in each.names:
                yield alias.asname or alias.name, f"{each.module}.{alias.name}"


def _targets(statement: ast.Assign | ast.AnnAssign | ast.AugAssign) -> Iterator[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    for target in targets:
        for each in ast.walk(target):
            if isinstance(each, ast.Name):
                yield each.id
