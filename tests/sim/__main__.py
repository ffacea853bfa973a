"""Run seeds: `python -m tests.sim --seeds 1000`, or one of them: `--seed 7 --trace`."""

from __future__ import annotations

import argparse
import secrets
import sys
import time

from tests.sim.run import run_seed, run_seeds


def main() -> int:
    """Run what the arguments ask for; return how many seeds failed, at most 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds")
    parser.add_argument("--start", type=int, default=None, help="the first seed")
    parser.add_argument("--seed", type=int, default=None, help="run this one seed")
    parser.add_argument("--mutant", default="", help="with this deliberate bug")
    parser.add_argument("--trace", action="store_true", help="print all that happened")
    parser.add_argument("--all", action="store_true", help="go on after a failure")
    options = parser.parse_args()
    if options.seed is not None:
        result = run_seed(options.seed, mutant=options.mutant)
        if options.trace:
            print("\n".join(result.trace))
        print(result.report)
        return int(result.is_failed)
    start = secrets.randbelow(2**31) if options.start is None else options.start
    print(f"seeds {start} to {start + options.seeds - 1}", flush=True)
    began = time.monotonic()
    failed = run_seeds(start, options.seeds, go_on=options.all, mutant=options.mutant)
    for result in failed:
        print(result.report)
    took = time.monotonic() - began
    print(f"{options.seeds} seeds, {len(failed)} failed, {took:.1f} s")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
