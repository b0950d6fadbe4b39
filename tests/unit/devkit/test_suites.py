from pathlib import Path

import pytest

from plimsoll_devkit import suites
from plimsoll_devkit.suites import SUITES, Outcome, Suite, counts, summary, unlisted

REPORT = """<testsuites><testsuite name="pytest" errors="1" failures="2" skipped="3" tests="10"/></testsuites>"""


def test_a_report_is_counted() -> None:
    assert counts(REPORT) == (4, 3, 3)


def test_the_last_line_is_plain() -> None:
    outcomes = [Outcome(SUITES[0], 1.0, passed=1), Outcome(SUITES[1], 60.0, 5, 2, 1, "over its budget")]
    lines = summary(outcomes, []).splitlines()
    assert lines[-1] == "6 passed, 2 failed, 1 skipped"
    assert "over its budget" in summary(outcomes, [])


def test_a_forgotten_folder_counts_as_a_failure() -> None:
    assert summary([], ["extra"]).splitlines()[-1] == "0 passed, 1 failed, 0 skipped"


def test_folders_with_tests_are_found(tmp_path: Path) -> None:
    for name in ("unit/a/test_x.py", "extra/test_y.py", "bench/test_z.py", "empty/readme.md"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    assert unlisted(tmp_path) == ["extra"]


def test_all_suites_together_stay_under_25_minutes() -> None:
    assert sum(suite.minutes for suite in SUITES) < 25


def test_a_listed_suite_without_its_folder_fails() -> None:
    assert suites.run(Suite("no-such-suite", 1)).failed == 1


def test_a_suite_over_its_budget_is_ended_and_fails() -> None:
    outcome = suites.run(Suite("slow", 0.005, command=("python", "-c", "import time; time.sleep(30)")))
    assert outcome.failed == 1
    assert outcome.remark == "over its budget"
    assert outcome.seconds < 5


@pytest.mark.parametrize(("code", "passed", "failed"), [("0", 1, 0), ("3", 0, 1)])
def test_a_command_counts_as_one_check(code: str, passed: int, failed: int) -> None:
    outcome = suites.run(Suite("command", 1, command=("python", "-c", f"raise SystemExit({code})")))
    assert (outcome.passed, outcome.failed) == (passed, failed)
