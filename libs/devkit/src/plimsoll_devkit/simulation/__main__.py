"""Run seeds of the simulation: `python -m plimsoll_devkit.simulation --seeds N [--seed S]`."""

import argparse
import sys
import time
from collections import Counter

from plimsoll_devkit.simulation import world

TRACE_LINES = 150


def main() -> int:
    """Run seeds; print the trace of the first that fails."""
    parser = argparse.ArgumentParser(prog="python -m plimsoll_devkit.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds, from 0 on")
    parser.add_argument("--seed", type=int, help="run only this one, and print its trace")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    seeds = [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
    began, faults, fences, virtual = time.process_time(), Counter[str](), 0, 0.0
    for seed in seeds:
        outcome = world.run(seed)
        faults += outcome.faults
        fences += outcome.fences
        virtual += outcome.virtual_seconds
        if outcome.violations or options.seed is not None:
            print("\n".join(outcome.trace[-TRACE_LINES:] if options.seed is None else outcome.trace))
            print(f"seed {seed}: {outcome.violations or 'kept every promise'}")
        if outcome.violations:
            print(f"again: python -m plimsoll_devkit.simulation --seed {seed}")
            return 1
    print(
        f"{len(seeds)} seeds, {virtual / 3600:.1f} virtual hours in {time.process_time() - began:.0f} s:"
        f" {fences} fences, faults {dict(faults)}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
