"""Makes ``tenure/sdk/sync_client.py`` from the public signatures of the asynchronous client.

>>> python -m tools.make_sync_client            # write it, and what it is made of
>>> python -m tools.make_sync_client --check    # fail if it is not what would be written
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
SDK: Final = ROOT / "src" / "tenure" / "sdk"
# The modules that are made, and what each is made of.
TARGETS: Final = {
    "sync_schedules": ("schedules",),
    "sync_client": ("handle", "run_handle", "completion", "client"),
}

Function = ast.FunctionDef | ast.AsyncFunctionDef
# How names of the asynchronous side are called on this one.
RENAMED: Final = {
    "Client": "SyncClient",
    "Handle": "SyncHandle",
    "RunHandle": "SyncRunHandle",
    "Completion": "SyncCompletion",
    "Schedules": "SyncSchedules",
    "AsyncIterator": "Iterator",
}
# The parts of the client that are not made by a call of it, and the property that returns each.
PARTS: Final = {"Schedules": "schedules"}
# What the calls of a class are passed on to; those of the others to the object they stand for.
SOURCE_OF: Final = {"Client": "client", **{name: f"client.{at}" for name, at in PARTS.items()}}
DOC_CHANGES: Final = (
    ("async with Client(", "with SyncClient("),
    ("async for", "for"),
    ("await ", ""),
    ("Client.", "SyncClient."),
    (" A client belongs to one event loop.", ""),
)
# What is needed when the module is loaded; the rest is for type checkers, so that nothing of gRPC
# is loaded before the first call: a process may be forked until then.
LOADED: Final = {
    *("Any", "Generic", "ParamSpec", "Self", "TypeVar", "Unpack", "overload"),
    *("Anchor", "CallInbox", "SyncSchedules", "builtins"),
}
HEAD: Final = '''"""The synchronous client. Made by ``make sync-client``; do not edit.

The one implementation runs on the connection thread of this process; see ``connection_thread``.
"""

'''
SPEAKS_FOR_PARTS: Final = """# It speaks for parts of the asynchronous client.
# ruff: noqa: SLF001

"""
FUTURE: Final = "from __future__ import annotations\n\n"


class Rename(ast.NodeTransformer):
    """Puts the names of this side in annotations."""

    def visit_Name(self, node: ast.Name) -> ast.Name:
        """Rename one."""
        return ast.Name(RENAMED.get(node.id, node.id), node.ctx)


def main() -> None:
    """Write the module, or check it."""
    for name, sources in TARGETS.items():
        target = SDK / f"{name}.py"
        made = make(target, sources)
        if sys.argv[1:] != ["--check"]:
            target.write_text(made)
        elif not target.exists() or target.read_text() != made:
            sys.exit(f"{target.name} is not that of the asynchronous client: run make sync-client")


def make(target: Path, sources: tuple[str, ...]) -> str:
    """Return the text of a module."""
    trees = {name: ast.parse((SDK / "client" / f"{name}.py").read_text()) for name in sources}
    classes = [
        make_class(node)
        for tree in trees.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name in RENAMED
    ]
    body = "\n\n\n".join(classes)
    head = HEAD + (SPEAKS_FOR_PARTS if "._at(" in body else "") + FUTURE
    return formatted(target, head + make_imports(trees, body) + "\n\n" + body + "\n")


def make_imports(trees: dict[str, ast.Module], body: str) -> str:
    """Return the imports and type variables that the classes need."""
    used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    places = {
        "Iterator": "collections.abc",
        "Anchor": "tenure.sdk.transport.connection_thread",
        "CallInbox": "tenure.sdk.transport.connection_thread",
        "SyncSchedules": "tenure.sdk.sync_schedules",
        "TYPE_CHECKING": "typing",
        "TypeVar": "typing",
        "ParamSpec": "typing",
    }
    plain: set[str] = set()
    variables: dict[str, ast.Assign] = {}
    for tree in trees.values():
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module:
                places |= {alias.name: node.module for alias in node.names if not alias.asname}
            elif isinstance(node, ast.Import):
                plain |= {alias.name for alias in node.names}
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                name = ast.unparse(node.targets[0])
                if ast.unparse(node.value.func) in {"TypeVar", "ParamSpec"} and name in used:
                    variables[name] = node
                    used.add(ast.unparse(node.value.func))
    places |= {name: f"tenure.sdk.client.{home}" for name, home in own_names(trees)}
    used.add("TYPE_CHECKING")
    loaded = [f"import {name}" for name in sorted(plain & used & LOADED)]
    checked: list[str] = []
    for name in sorted(used & set(places)):
        line = f"from {places[name]} import {name}"
        is_loaded = name in LOADED or name == "TYPE_CHECKING"
        (loaded if is_loaded else checked).append(line)
    lines = [*loaded, "if TYPE_CHECKING:", *(f"    {line}" for line in checked)]
    return "\n".join([*lines, "", *sorted(map(ast.unparse, variables.values()))])


def own_names(trees: dict[str, ast.Module]) -> Iterator[tuple[str, str]]:
    """Yield what the modules define themselves, and which one does."""
    for home, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                yield node.name, home
            elif isinstance(node, ast.Assign) and not isinstance(node.value, ast.Call):
                yield ast.unparse(node.targets[0]), home


def make_class(node: ast.ClassDef) -> str:
    """Return the synchronous counterpart of a class."""
    bases = ", ".join(ast.unparse(Rename().visit(base)) for base in node.bases)
    head = f"class {RENAMED[node.name]}({bases}):" if bases else f"class {RENAMED[node.name]}:"
    parts = [head, indented(doc(node)), indented(make_start(node))]
    for item, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(item, ast.AnnAssign) and isinstance(after, ast.Expr):
            parts.append(indented(make_property(item, after)))
        elif isinstance(item, Function) and not item.name.startswith("_"):
            parts.append(indented(make_method(node.name, item)))
    return "\n\n".join(parts)


def make_start(node: ast.ClassDef) -> str:
    """Return how an object is made and shown, and for the client, how it is used in ``with``."""
    if node.name in PARTS:
        return (
            f"def __init__(self, anchor: Anchor) -> None:\n"
            f'    """Use ``SyncClient.{PARTS[node.name]}``."""\n'
            "    self._anchor = anchor\n\n"
            "def __repr__(self) -> str:\n"
            f'    return f"<{RENAMED[node.name]} of {{self._anchor!r}}>"'
        )
    if node.name != "Client":
        kind = node.name + "".join(ast.unparse(each)[len("Generic") :] for each in node.bases)
        return (
            f"def __init__(self, anchor: Anchor, part: {kind}) -> None:\n"
            f'    """Use ``SyncClient`` instead."""\n'
            "    self._anchor = anchor\n    self._part = part\n\n"
            "def __repr__(self) -> str:\n    return repr(self._part)"
        )
    start = next(
        item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"
    )
    given = forwarded(start.args, is_named=True)
    return (
        f"def __init__({parameters(start.args)}) -> None:\n"
        f"{indented(doc(start))}\n    self._anchor = Anchor({given})\n\n"
        "def __enter__(self) -> Self:\n    return self\n\n"
        "def __exit__(self, *_: object) -> None:\n    self.close()\n\n"
        "def __repr__(self) -> str:\n    return repr(self._anchor)"
    )


def make_property(item: ast.AnnAssign, text: ast.Expr) -> str:
    """Return a property for an attribute and the docstring behind it."""
    name, kind = ast.unparse(item.target), ast.unparse(item.annotation)
    said = ast.literal_eval(text.value)
    return f'@property\ndef {name}(self) -> {kind}:\n    """{said}"""\n    return self._part.{name}'


def make_method(owner: str, item: Function) -> str:
    """Return a method that waits where that of the asynchronous side awaits."""
    returns = ast.unparse(Rename().visit(item.returns)) if item.returns else "None"
    is_overload = any(ast.unparse(each) == "overload" for each in item.decorator_list)
    head = f"def {item.name}({parameters(item.args)}) -> {returns}:"
    if any(ast.unparse(each) == "property" for each in item.decorator_list):
        return f"@property\n{head}\n{indented(doc(item))}\n    return {returns}(self._anchor)"
    if is_overload:
        return f"@overload\n{head} ..."
    if item.name == "close":
        return f"{head}\n{indented(doc(item))}\n    self._anchor.close()"
    has_callback = "on_progress" in [each.arg for each in item.args.kwonlyargs]
    source = SOURCE_OF.get(owner, "self._part._at(client)")
    given = forwarded(item.args)
    start = "    inbox = CallInbox()\n" if has_callback else ""
    for name in (each.arg for each in item.args.args if f"(*{each.arg},)" in given):
        # Before the lambda: that runs in the other thread.
        start += f"    {name} = (*{name},)\n"
        given = given.replace(f"(*{name},)", name)
    call = f"lambda client: {source}.{item.name}({given})"
    runner = "run" if isinstance(item, ast.AsyncFunctionDef) else "call"
    runner = "iterate" if returns.startswith("Iterator") else runner
    call = f"self._anchor.{runner}({call}{', inbox' if has_callback else ''})"
    return f"{head}\n{indented(doc(item))}\n{start}    {wrapped(call, returns)}"


def wrapped(call: str, returns: str) -> str:
    """Return the statements that give a result its synchronous form."""
    for name in ("SyncHandle", "SyncRunHandle", "SyncCompletion"):
        if returns.startswith(name):
            return f"return {name}(self._anchor, {call})"
        if f"list[{name}" in returns:
            return f"return [{name}(self._anchor, each) for each in {call}]"
    return f"return {call}" if returns != "None" else call


def parameters(arguments: ast.arguments) -> str:
    """Return the parameters of a function as they are written."""
    return ast.unparse(Rename().visit(arguments))


def forwarded(arguments: ast.arguments, *, is_named: bool = False) -> str:
    """Return the arguments that hand everything on."""
    first = [each.arg for each in arguments.posonlyargs if each.arg != "self"]
    named = [each for each in (*arguments.args, *arguments.kwonlyargs) if each.arg != "self"]
    given = [*first]
    if arguments.vararg and not is_named:
        given.append(f"*{arguments.vararg.arg}")
    given += [f"{each.arg}={handed(each)}" for each in named]
    if arguments.kwarg:
        given.append(f"**{arguments.kwarg.arg}")
    return ", ".join(given)


def handed(argument: ast.arg) -> str:
    """Return an argument as it goes to the other thread: code of users stays in theirs."""
    kind = ast.unparse(argument.annotation) if argument.annotation else ""
    if argument.arg.startswith("on_"):
        return f"inbox.door({argument.arg})"
    return f"(*{argument.arg},)" if kind.startswith("Iterable") else argument.arg


def doc(node: ast.ClassDef | Function) -> str:
    """Return the docstring of this side."""
    text = ast.get_docstring(node) or ""
    for old, new in DOC_CHANGES:
        text = text.replace(old, new)
    return f'"""{text}\n"""' if "\n" in text else f'"""{text}"""'


def indented(text: str) -> str:
    """Return lines one level deeper."""
    return "\n".join(f"    {line}" if line else "" for line in text.split("\n"))


def formatted(target: Path, text: str) -> str:
    """Return the text as ruff would write it."""
    for command in (("check", "--quiet", "--fix", "--select", "I"), ("format", "--quiet")):
        text = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(target), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        ).stdout
    return text


if __name__ == "__main__":
    main()
