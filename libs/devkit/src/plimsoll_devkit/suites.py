"""Does everything that can be checked hold, and how long does each suite take?"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from plimsoll_devkit.stack.context import ROOT

_CHECKED = ["libs", "services", "tests", "examples"]


@dataclass(frozen=True, slots=True)
class Suite:
    """One row: `minutes` is what it may take on two cores; over it, it has failed. `quick` suites need no server."""

    name: str
    minutes: float
    quick: bool = False
    command: tuple[str, ...] = ()


# A folder of tests/ that is not in this table is an error, and so is a row without its folder.
SUITES = (
    Suite("style", 0.2, quick=True, command=("ruff", "check", ".")),
    Suite("format", 0.2, quick=True, command=("ruff", "format", "--check", ".")),
    Suite("types", 0.4, quick=True, command=("mypy", *_CHECKED)),
    Suite("layers", 0.2, quick=True, command=("lint-imports", "--no-logo")),
    Suite("unit", 2.6, quick=True),
    Suite("cases", 0.2, quick=True),
    Suite("contract", 0.3, quick=True),
    Suite("docs", 0.3, quick=True),
    Suite("integration", 5.8),
    Suite("system", 3.8),
    Suite("fuzz", 1.2),
    Suite("sim", 1),
    Suite("model", 1.5),
    Suite("alerts", 1.1),
    Suite("chaos", 5.8),
)
NOT_SUITES = {"bench"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one suite went."""

    suite: Suite
    seconds: float
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    remark: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suites asked for; 0 when all hold."""
    parser = argparse.ArgumentParser(prog="suites", description=__doc__)
    parser.add_argument("which", choices=["test", "check"])
    parser.add_argument("names", nargs="*", help="only these suites")
    asked = parser.parse_args(arguments)
    known = {suite.name for suite in SUITES}
    if unknown := sorted(set(asked.names) - known):
        parser.error(f"no such suite: {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    chosen = [suite for suite in SUITES if asked.which == "test" or suite.quick]
    if asked.names:
        chosen = [suite for suite in chosen if suite.name in asked.names]
    outcomes = [run(suite) for suite in chosen]
    forgotten = [] if asked.names else unlisted(ROOT / "tests")
    print(summary(outcomes, forgotten), flush=True)  # noqa: T201  a command prints
    return 1 if forgotten or any(outcome.failed for outcome in outcomes) else 0


def unlisted(tests: Path) -> list[str]:
    """Folders with tests that no suite runs."""
    known = {suite.name for suite in SUITES} | NOT_SUITES
    return sorted({path.relative_to(tests).parts[0] for path in tests.glob("*/**/test_*.py")} - known)


def run(suite: Suite) -> Outcome:
    """Run one suite within its budget."""
    print(f"\n== {suite.name}", flush=True)  # noqa: T201
    began = time.monotonic()
    if suite.command:
        program = Path(sys.executable).with_name(suite.command[0])
        code = _run_within([str(program), *suite.command[1:]], suite.minutes * 60)
        outcome = Outcome(suite, time.monotonic() - began, passed=int(code == 0), failed=int(code != 0))
    elif not (ROOT / "tests" / suite.name).is_dir():
        return Outcome(suite, 0.0, failed=1, remark="the folder is missing")
    else:
        outcome = _run_pytest(suite, began)
    if outcome.seconds > suite.minutes * 60:
        return Outcome(suite, outcome.seconds, outcome.passed, outcome.failed or 1, outcome.skipped, "over its budget")
    return outcome


def _run_pytest(suite: Suite, began: float) -> Outcome:
    folder = Path(tempfile.mkdtemp(prefix="plimsoll-suite-"))
    report = folder / "report.xml"
    try:
        argv = [sys.executable, "-m", "pytest", f"tests/{suite.name}", "--quiet", f"--junitxml={report}"]
        code = _run_within(argv, suite.minutes * 60)
        passed, failed, skipped = counts(report.read_text()) if report.exists() else (0, 0, 0)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    # pytest ends with a code for more than failed tests: no test found, a broken option, an interrupt.
    remark = "" if code in (0, 1) else f"pytest ended with code {code}"
    return Outcome(suite, time.monotonic() - began, passed, failed or int(code != 0), skipped, remark)


def counts(junit: str) -> tuple[int, int, int]:
    """Passed, failed (errors too) and skipped tests of a JUnit report."""
    root = ET.fromstring(junit)  # noqa: S314  pytest wrote it a moment ago
    total = failed = skipped = 0
    for element in root.iter("testsuite"):
        total += int(element.get("tests", 0))
        failed += int(element.get("failures", 0)) + int(element.get("errors", 0))
        skipped += int(element.get("skipped", 0))
    return max(total - failed - skipped, 0), failed, skipped


def _run_within(argv: list[str], seconds: float) -> int:
    """The command's exit code; past its time it is interrupted, so that it can clean up, then killed."""
    with subprocess.Popen(argv, cwd=ROOT, start_new_session=True) as process:  # noqa: S603
        try:
            return process.wait(seconds)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as stopped:
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(stopped, KeyboardInterrupt):
                raise
            return 124


def summary(outcomes: Sequence[Outcome], forgotten: Sequence[str]) -> str:
    """The table of suites, and a plain last line with the sums."""
    lines = ["", f"{'suite':<13}{'minutes':>8}{'budget':>8}{'passed':>8}{'failed':>8}{'skipped':>9}"]
    lines += [
        f"{one.suite.name:<13}{one.seconds / 60:>8.2f}{one.suite.minutes:>8.1f}"
        f"{one.passed:>8}{one.failed:>8}{one.skipped:>9}  {one.remark}".rstrip()
        for one in outcomes
    ]
    minutes = sum(one.seconds for one in outcomes) / 60
    budget = sum(one.suite.minutes for one in outcomes)
    lines.append(f"{'all':<13}{minutes:>8.2f}{budget:>8.1f}")
    lines += [f"tests/{name} is in no suite: add it to the table in plimsoll_devkit/suites.py" for name in forgotten]
    passed, failed, skipped = (sum(getattr(one, kind) for one in outcomes) for kind in ("passed", "failed", "skipped"))
    return "\n".join([*lines, "", f"{passed} passed, {failed + len(forgotten)} failed, {skipped} skipped"])


if __name__ == "__main__":
    sys.exit(main())
