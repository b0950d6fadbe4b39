"""Do the topics on the broker match the catalogue: `python -m plimsoll_streams topics [--check]`."""

import argparse
import asyncio
import os
import sys

from plimsoll_contracts.topics import CATALOGUE
from plimsoll_streams import kafka


def main() -> int:
    """Create or check the topics; exit 1 where the broker differs."""
    parser = argparse.ArgumentParser(prog="python -m plimsoll_streams", description=__doc__)
    commands = parser.add_subparsers(required=True)
    topics = commands.add_parser("topics", help="create the topics of the catalogue, or compare them")
    topics.add_argument("--check", action="store_true", help="create nothing, only compare")
    topics.add_argument("--bootstrap", default=os.environ.get("PLIMSOLL_KAFKA_BOOTSTRAP"))
    topics.add_argument("--replication", type=int, default=1, help="replicas of each new topic")
    options = parser.parse_args()
    if not options.bootstrap:
        parser.error("set PLIMSOLL_KAFKA_BOOTSTRAP or give --bootstrap")
    if options.check:
        work = kafka.check_topics(options.bootstrap, CATALOGUE)
    else:
        work = kafka.create_topics(options.bootstrap, CATALOGUE, replication=options.replication)
    problems = asyncio.run(work)
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(CATALOGUE)} topics declared, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
