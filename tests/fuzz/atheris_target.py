"""A decoder under a fuzzer that sees which branches are taken.

``python -m tests.fuzz.atheris_target cursors --runs 100000``: ends with 0 when nothing was found;
what was found is printed with the bytes that show it. There is no atheris on every platform.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

# Where the decoders are; the rest would only make it slow.
_WATCHED: Final = ("tenure.core", "tenure.api.http", "tenure.sdk", "tenure.store")
_MISSING: Final = 2


def main() -> None:
    """Run one target; the fuzzer itself ends the process."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.atheris_target")
    parser.add_argument("name", help="one of TARGETS in tests/fuzz/target.py")
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    try:
        fuzzer: Any = importlib.import_module("atheris")
    except ImportError:
        parser.exit(_MISSING, "atheris is not installed here.\n")
    with fuzzer.instrument_imports(include=list(_WATCHED)):
        from tests.fuzz import target  # noqa: PLC0415 (what it imports is instrumented)
    if options.name not in target.TARGETS:
        parser.error(f"unknown: {options.name}; known: {', '.join(target.TARGETS)}")
    with tempfile.TemporaryDirectory(prefix="tenure-fuzz-") as folder:
        for number, data in enumerate(target.EXAMPLES[options.name]):
            (Path(folder) / str(number)).write_bytes(data)
        settings = [
            f"-atheris_runs={options.runs}",
            f"-max_total_time={options.seconds}",
            f"-seed={options.seed}",
            *("-max_len=4096", "-rss_limit_mb=0", f"-artifact_prefix={folder}/"),
        ]
        fuzzer.Setup([sys.argv[0], *settings, folder], target.TARGETS[options.name])
        fuzzer.Fuzz()


if __name__ == "__main__":
    main()
