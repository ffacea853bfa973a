"""Finds where a set is iterated: a set of texts has another order in each process."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from tenure.sdk.body_lint.names import Function, LocalNames

_MADE_BY: Final = frozenset({"builtins.set", "builtins.frozenset"})
_ANNOTATED: Final = _MADE_BY | {"typing.Set", "typing.FrozenSet", "typing.AbstractSet"}
_NUMBERS: Final = frozenset({"builtins.int", "builtins.float", "builtins.bool"})
_METHODS: Final = frozenset({"union", "intersection", "difference", "symmetric_difference", "copy"})
# What comes out of these does not depend on the order.
_UNORDERED: Final = frozenset(
    f"builtins.{name}"
    for name in ("sorted", "set", "frozenset", "sum", "min", "max", "any", "all", "len")
)
_ORDERED: Final = frozenset(
    f"builtins.{name}" for name in ("list", "tuple", "enumerate", "iter", "zip", "map", "filter")
)
_COMPREHENSIONS: Final = (ast.ListComp, ast.GeneratorExp, ast.DictComp)


class SetFinder:
    """Knows which variables of a function are sets, and where their order is used."""

    def __init__(self, names: LocalNames, function: Function) -> None:
        """Look through a function."""
        self._names = names
        self._sets = {
            each.arg
            for each in ast.walk(function)
            if isinstance(each, ast.arg) and self._is_set_type(each.annotation)
        }
        self._harmless: set[int] = set()
        for node in ast.walk(function):
            self._learn(node)

    def iterated(self, node: ast.AST) -> Iterator[ast.expr]:
        """Yield the sets whose order a node uses."""
        if isinstance(node, ast.For | ast.AsyncFor):
            yield from self._only_sets(node.iter)
        elif isinstance(node, _COMPREHENSIONS) and id(node) not in self._harmless:
            yield from self._only_sets(*(each.iter for each in node.generators))
        elif isinstance(node, ast.Starred):
            yield from self._only_sets(node.value)
        elif isinstance(node, ast.Call):
            yield from self._of_call(node)

    def _of_call(self, call: ast.Call) -> Iterator[ast.expr]:
        function = call.func
        method = function.attr if isinstance(function, ast.Attribute) else ""
        if method == "join" or self._names.full_name(function) in _ORDERED:
            yield from self._only_sets(*call.args)
        elif isinstance(function, ast.Attribute) and method == "pop" and not call.args:
            yield from self._only_sets(function.value)

    def _learn(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign) and self._is_set(node.value):
            self._sets |= {each.id for each in node.targets if isinstance(each, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if self._is_set_type(node.annotation):
                self._sets.add(node.target.id)
        elif isinstance(node, ast.Call) and self._names.full_name(node.func) in _UNORDERED:
            self._harmless |= {id(each) for each in node.args}

    def _only_sets(self, *nodes: ast.expr) -> Iterator[ast.expr]:
        return (each for each in nodes if self._is_set(each))

    def _is_set(self, node: ast.expr) -> bool:
        match node:
            case ast.Set(elts=elements):
                return not all(_is_number(each) for each in elements)
            case ast.SetComp():
                return True
            case ast.Name(id=name):
                return name in self._sets
            case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor()):
                return self._is_set(left)
            case ast.Call(func=ast.Attribute(value=owner, attr=method)) if method in _METHODS:
                return self._is_set(owner)
            case ast.Call(func=function, args=[_, *_]):
                return self._names.full_name(function) in _MADE_BY
            case _:
                return False

    def _is_set_type(self, annotation: ast.expr | None) -> bool:
        if isinstance(annotation, ast.Subscript):
            items = self._names.full_name(annotation.slice)
            return self._is_set_type(annotation.value) and items not in _NUMBERS
        return annotation is not None and self._names.full_name(annotation) in _ANNOTATED


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)
