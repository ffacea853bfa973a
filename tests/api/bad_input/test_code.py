"""What no module may do: run, unpickle or import what somebody sent."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import tenure

SOURCE: Final = Path(tenure.__file__).parent
FORBIDDEN_MODULES: Final = frozenset(
    {
        "pickle",
        "_pickle",
        "cPickle",
        "cloudpickle",
        "dill",
        "marshal",
        "shelve",
        "jsonpickle",
        "yaml",
    }
)
FORBIDDEN_CALLS: Final = frozenset({"eval", "exec", "compile", "__import__", "execfile"})
IMPORTERS: Final = frozenset(
    {"import_module", "find_spec", "exec_module", "run_module", "run_path"}
)
# Where a name becomes a module, and whose name it is; none of them comes over a wire.
ALLOWED_IMPORTERS: Final = {
    "__init__.py": "the public names, from a table in the same file",
    "testing/__init__.py": "the public names, from a table in the same file",
    "cli/main.py": "the commands, from a table in the same file",
    "cli/module.py": "the module that the operator names on the command line",
    "cli/dev/file_watch.py": "the file of that module, to see it change",
    "sdk/worker/execution/child.py": "the module of an activity that the worker has registered",
}


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Return every module of ours that people wrote."""
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE).as_posix()
        if not place.startswith("v1/"):
            yield place, ast.parse(path.read_text(), place)


def imported(tree: ast.Module) -> Iterator[str]:
    """Return the names of all modules that are imported, at the top or inside."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def called(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Return the last names of all that is called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Name):
                yield function.id, node.lineno
            elif isinstance(function, ast.Attribute):
                yield function.attr, node.lineno


def test_no_module_imports_pickle_or_its_relatives() -> None:
    found = [
        f"{place}: {name}"
        for place, tree in modules()
        for name in imported(tree)
        if name.partition(".")[0] in FORBIDDEN_MODULES
    ]
    assert not found


def test_no_module_runs_text() -> None:
    def is_method(tree: ast.Module, line: int) -> bool:
        # A method such as re.compile is another thing than the function of Python.
        return any(
            isinstance(node, ast.Call)
            and node.lineno == line
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in FORBIDDEN_CALLS
            for node in ast.walk(tree)
        )

    found = [
        f"{place}:{line}: {name}"
        for place, tree in modules()
        for name, line in called(tree)
        if name in FORBIDDEN_CALLS and not is_method(tree, line)
    ]
    assert not found


def test_modules_are_imported_by_name_only_where_nobody_else_chooses_the_name() -> None:
    found = {place for place, tree in modules() for name, _ in called(tree) if name in IMPORTERS}
    assert found == set(ALLOWED_IMPORTERS)


def test_the_server_imports_nothing_by_name() -> None:
    served = ("api/", "engine/", "store/", "core/")
    assert not [place for place in ALLOWED_IMPORTERS if place.startswith(served)]


def test_secrets_are_compared_in_constant_time() -> None:
    """Signatures and digests of secrets are never compared with an operator."""
    found = []
    for place, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare) and any(
                isinstance(each, ast.Eq | ast.NotEq) for each in node.ops
            ):
                names = {
                    inner.id if isinstance(inner, ast.Name) else inner.attr
                    for side in (node.left, *node.comparators)
                    for inner in ast.walk(side)
                    if isinstance(inner, ast.Name | ast.Attribute)
                }
                if names & {"signature", "secret", "secret_hash", "hmac", "expected"}:
                    found.append(f"{place}:{node.lineno}")
    assert not found
