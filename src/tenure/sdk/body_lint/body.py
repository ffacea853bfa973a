"""Looks through one function: the body of a workflow, or a helper that it calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final, NamedTuple

from tenure.sdk.body_lint import rule
from tenure.sdk.body_lint.names import FileNames, Function, LocalNames
from tenure.sdk.body_lint.rule import Rule
from tenure.sdk.body_lint.sets import SetFinder

# What they are given runs elsewhere.
_CALLS: Final = frozenset({"step", "execute", "map", "child", "begin", "with_options"})
_PATH: Final = "pathlib.Path"
_MUTATING: Final = frozenset(
    {
        *("append", "extend", "insert", "remove", "pop", "clear", "add", "discard", "update"),
        *("setdefault", "popitem", "sort", "reverse", "appendleft", "popleft"),
    }
)
_FUTURES: Final = frozenset({"step", "execute", "map", "child", "create_task", "ensure_future"})


class Flaw(NamedTuple):
    """Something in a function, and which rule it breaks."""

    node: ast.expr | ast.stmt
    rule: Rule
    what: str


class BodyReader:
    """Finds the flaws of a function, and the functions of its file that it calls."""

    def __init__(self, file: FileNames, function: Function) -> None:
        """Prepare to look through a function."""
        self.called: list[str] = []
        self._function = function
        self._names = LocalNames(file, function)
        self._sets = SetFinder(self._names, function)
        self._steps = {
            argument.id
            for each in ast.walk(function)
            if isinstance(each, ast.Call) and _is_method(each, _CALLS)
            for argument in each.args[:1]
            if isinstance(argument, ast.Name)
        }

    def flaws(self) -> Iterator[Flaw]:
        """Yield what was found, in the order of the source as far as it is nested alike."""
        for statement in self._function.body:
            yield from self._visit(statement)

    def _visit(self, node: ast.AST) -> Iterator[Flaw]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in self._steps:
            return
        for found in self._sets.iterated(node):
            yield Flaw(found, rule.SET, "iterates over a set")
        yield from self._written(node)
        if isinstance(node, ast.Call):
            yield from self._call(node)
        elif isinstance(node, ast.Attribute):
            name = self._names.full_name(node)
            if name in rule.READ_ATTRIBUTES:
                yield Flaw(node, rule.READ_ATTRIBUTES[name], f"reads {name}")
        for child in ast.iter_child_nodes(node):
            if not (isinstance(child, ast.Lambda) and _is_argument_of_step(node, child)):
                yield from self._visit(child)

    def _call(self, call: ast.Call) -> Iterator[Flaw]:
        if isinstance(call.func, ast.Name) and call.func.id in self._names.file.functions:
            self.called.append(call.func.id)
        name = self._names.full_name(call.func)
        broken = rule.of_call(name) if name else None
        if broken is not None:
            yield Flaw(call, broken, f"calls {name.removeprefix('builtins.')}")
            return
        yield from self._of_asyncio(call, name)
        if name == "random.Random" and not call.args:
            yield Flaw(call, rule.CHANCE, "calls random.Random without a seed")
        if isinstance(call.func, ast.Attribute) and self._is_path(call.func):
            yield Flaw(call, rule.BLOCKING, f"calls Path.{call.func.attr}")

    def _of_asyncio(self, call: ast.Call, name: str) -> Iterator[Flaw]:
        given = call.args[:1]
        if name == "asyncio.as_completed" and any(map(_has_coroutines, given)):
            yield Flaw(call, rule.AS_COMPLETED, "passes coroutines to asyncio.as_completed")
        elif name == "asyncio.wait_for" and any(map(_is_coroutine, given)):
            yield Flaw(call, rule.WAIT_FOR, "passes a coroutine to asyncio.wait_for")
        elif _is_method(call, frozenset({"run_in_executor"})):
            yield Flaw(call, rule.OUTSIDE, "calls loop.run_in_executor")

    def _is_path(self, function: ast.Attribute) -> bool:
        owner = function.value
        is_path = isinstance(owner, ast.Call) and self._names.full_name(owner.func) == _PATH
        return is_path and function.attr in rule.PATH_METHODS

    def _written(self, node: ast.AST) -> Iterator[Flaw]:
        """Yield the variables of the file that a node changes."""
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.Delete):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.Call) and _is_method(node, _MUTATING):
            assert isinstance(node.func, ast.Attribute)
            owner = node.func.value
            if isinstance(owner, ast.Name) and self._names.is_global(owner.id):
                yield Flaw(node, rule.GLOBAL, f"changes the global {owner.id}")
        for target in targets:
            name = self._global_of(target)
            if name:
                yield Flaw(target, rule.GLOBAL, f"changes the global {name}")

    def _global_of(self, target: ast.expr) -> str:
        """Return the variable of the file that an assignment changes, if it does."""
        if isinstance(target, ast.Name):
            return target.id if target.id in self._names.globals else ""
        while isinstance(target, ast.Subscript | ast.Attribute):
            target = target.value
        is_global = isinstance(target, ast.Name) and self._names.is_global(target.id)
        return target.id if is_global and isinstance(target, ast.Name) else ""


def _is_method(call: ast.Call, names: frozenset[str]) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in names


def _is_argument_of_step(node: ast.AST, child: ast.Lambda) -> bool:
    return isinstance(node, ast.Call) and _is_method(node, _CALLS) and child in node.args


def _is_coroutine(node: ast.expr) -> bool:
    """Tell whether a call makes a coroutine, and not the future of a step or a task."""
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    return name not in _FUTURES and _last_name(node.func) not in _FUTURES


def _last_name(function: ast.expr) -> str:
    return function.id if isinstance(function, ast.Name) else ""


def _has_coroutines(node: ast.expr) -> bool:
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return any(map(_is_coroutine, node.elts))
    if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp):
        return _is_coroutine(node.elt)
    return False
