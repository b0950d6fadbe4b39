"""How are the published schemas and reference pages written: ``python -m plimsoll_contracts export [--check]``."""

import argparse
import sys
from pathlib import Path

from plimsoll_contracts import export


def main(arguments: list[str] | None = None) -> int:
    """Write the generated files, or only say where they differ (exit code 1)."""
    parser = argparse.ArgumentParser(prog="python -m plimsoll_contracts", description=__doc__)
    command = parser.add_subparsers(required=True).add_parser("export", help="write schemas, AsyncAPI and pages")
    command.add_argument("--check", action="store_true", help="write nothing, fail on drift")
    command.add_argument("--to", type=Path, default=Path("docs/reference"), help="the folder (default %(default)s)")
    chosen = parser.parse_args(arguments)
    if not chosen.check:
        export.write(chosen.to)
        return 0
    wrong = export.drift(chosen.to)
    for line in wrong:
        print(f"{chosen.to}: {line}", file=sys.stderr)
    if wrong:
        print("Run `python -m plimsoll_contracts export` and look at what changed.", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
