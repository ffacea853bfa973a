"""What ``tenure worker`` runs: the activities and workflows, or the worker, of a module."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from tenure.cli.exit_code import ExitCode
from tenure.cli.failure import CliError

if TYPE_CHECKING:
    from tenure.sdk.payload import Codec
    from tenure.sdk.worker.worker import Worker

_LISTED: Final = "activities"
_HOW: Final = (
    'Decorate a function of it with @activity(start_to_close="30s") or @workflow, or list '
)
_LIST_HINT: Final = "instances in it: activities = [Payments(gateway)]"


def add_folder() -> None:
    """Let modules of the present folder be imported, as ``python -m`` does."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def split(text: str) -> tuple[str, str]:
    """Return module and name of ``package.module`` or ``package.module:name``."""
    module, _, name = text.partition(":")
    if module.endswith(".py") or os.sep in module:
        guess = module.removesuffix(".py").replace(os.sep, ".").lstrip(".")
        raise _usage(f"{module} is a file.", f"Name the module: {guess}")
    parts = [*module.split("."), *([name] if name else [])]
    if not all(part.isidentifier() for part in parts):
        raise _usage(f"{text!r} is not a module.", "Write package.module or package.module:name.")
    return module, name


def load(text: str, *, is_verbose: bool = False) -> Worker | list[object]:
    """Import a module and return its worker, or else its activities and workflows."""
    from tenure.sdk.worker.worker import Worker

    module_name, name = split(text)
    module = _imported(module_name, is_verbose=is_verbose)
    if name:
        return _named(module, name)
    workers = {
        variable: value for variable, value in vars(module).items() if isinstance(value, Worker)
    }
    if len(set(map(id, workers.values()))) == 1:
        return next(iter(workers.values()))
    if workers:
        some = ", ".join(f"{module_name}:{variable}" for variable in workers)
        raise _usage(f"{module_name} has several workers.", f"Say which one to run: {some}")
    return _found(module)


def _named(module: ModuleType, name: str) -> Worker | list[object]:
    from tenure.sdk.activity.definition import Activity
    from tenure.sdk.worker.worker import Worker
    from tenure.sdk.workflow.definition import Workflow

    value = _attribute(module, name)
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    if isinstance(value, Worker | Activity | Workflow) or not callable(value):
        return value if isinstance(value, Worker) else [value]
    return _made(value, f"{module.__name__}:{name}")


def load_codec(text: str) -> Codec:
    """Import a module and return the codec that is named, or made by what is named."""
    from tenure.sdk.payload import Codec

    module_name, name = split(text)
    if not name:
        raise _usage(f"{text} names a module and no codec in it.", "Write package.module:name.")
    value = _attribute(_imported(module_name, is_verbose=False), name)
    if callable(value):
        try:
            value = value()
        except Exception as error:
            raise _failed(f"{text}() failed", error) from error
    if not isinstance(value, Codec):
        raise _usage(f"{text} is no codec.", "Give it the methods encode and decode.")
    return value


def _attribute(module: ModuleType, name: str) -> object:
    try:
        return getattr(module, name)
    except AttributeError:
        known = ", ".join(sorted(each for each in vars(module) if not each.startswith("_")))
        hint = f"It has: {known}" if known else "It is empty."
        raise _usage(f"{module.__name__} has no {name!r}.", hint) from None


def _made(make: Callable[[], object], where: str) -> Worker | list[object]:
    """Call a function that makes a worker or a list of activities."""
    from tenure.sdk.worker.worker import Worker

    try:
        made = make()
    except Exception as error:
        raise _failed(f"{where}() failed", error) from error
    if isinstance(made, Worker):
        return made
    if isinstance(made, list | tuple):
        return list(made)
    hint = "Let it return a Worker, or a list of activities."
    raise _usage(f"{where}() returned {type(made).__qualname__}.", hint)


def _found(module: ModuleType) -> list[object]:
    """Return the activities that a module lists or, without a list, has; and its workflows."""
    from tenure.sdk.activity.definition import Activity
    from tenure.sdk.workflow.definition import Workflow

    listed = getattr(module, _LISTED, None)
    has_list = isinstance(listed, list | tuple)
    kinds: tuple[type, ...] = (Workflow,) if has_list else (Activity, Workflow)
    found = list(listed) if isinstance(listed, list | tuple) else []
    found += [each for each in vars(module).values() if isinstance(each, kinds)]
    if not found and not has_list:
        raise CliError(
            f"{module.__name__} has no activities and no workflows.",
            hint=_HOW + _LIST_HINT,
            exit_code=ExitCode.USAGE,
        )
    return list({id(each): each for each in found}.values())


def _imported(name: str, *, is_verbose: bool) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Only if it is the module itself that is missing, and not one that it imports.
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise CliError(
                f"There is no module {name}.",
                why=f"Python looked in {Path.cwd()} and in its packages.",
                hint="Start it in the folder of the module, or set PYTHONPATH.",
                exit_code=ExitCode.USAGE,
            ) from None
        failure: BaseException = error
    except Exception as error:  # noqa: BLE001 (code of a user may raise anything)
        failure = error
    if is_verbose:
        traceback.print_exception(failure)
    raise _failed(f"{name} cannot be imported", failure)


def _failed(what: str, error: BaseException) -> CliError:
    """Return the error for code of a user that raised, with the place where it did."""
    place = _place(error)
    if isinstance(error, SyntaxError):
        place = f" ({error.filename}, line {error.lineno})"
    text = str(error.msg if isinstance(error, SyntaxError) else error)
    return CliError(
        f"{what}: {type(error).__name__}: {text}".rstrip(": "),
        why=f"Its code raised this{place}.",
        hint="Correct it. -v shows the whole traceback.",
        exit_code=ExitCode.FAILED,
    )


def _place(error: BaseException) -> str:
    """Return the last line of the user's code: what it called may be ours, or Python's."""
    from tenure.sdk.workflow.source_line import is_users

    frames = list(traceback.walk_tb(error.__traceback__))
    users = [each for each in frames if is_users(each[0])] or frames
    if not users:
        return ""
    frame, line = users[-1]
    return f" ({frame.f_code.co_filename}, line {line})"


def _usage(what: str, hint: str) -> CliError:
    return CliError(what, hint=hint, exit_code=ExitCode.USAGE)
