"""The engine's own loop in a world where everything fails: its promises hold, and each guard is needed."""

import subprocess
import sys
from collections import Counter
from collections.abc import Mapping

import pytest

from plimsoll_devkit.simulation import world
from plimsoll_streams import ownership
from plimsoll_streams.ahead import ReadAhead
from plimsoll_streams.ownership import Claim, Ownership, Verdict
from plimsoll_streams.records import Partition

SEEDS = 500
SEEDS_TO_FAIL = 1000


def test_every_promise_is_kept() -> None:
    faults: Counter[str] = Counter()
    fences = 0
    for seed in range(SEEDS):
        outcome = world.run(seed)

        assert not outcome.violations, f"python -m plimsoll_devkit.simulation --seed {seed}"

        faults += outcome.faults
        fences += outcome.fences
    # A world without faults would keep every promise, too.
    assert fences > SEEDS / 50
    assert {"crash", "freeze", "cut database", "cut broker", "database down", "guest", "storm"} == set(faults)
    assert min(faults.values()) > SEEDS / 10


def first_failure() -> int | None:
    return next((seed for seed in range(SEEDS_TO_FAIL) if world.run(seed).violations), None)


def test_without_the_generation_check_a_promise_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was awaited across a rebalance is taken for true."""
    original = Ownership.claimed

    def claimed(
        self: Ownership,
        generation: int,  # noqa: ARG001 - the check that is taken out
        claims: Mapping[Partition, Claim],
        log: Mapping[Partition, tuple[int, int]],
        now: float,
    ) -> Ownership:
        return original(self, self.generation, claims, log, now)

    monkeypatch.setattr(Ownership, "claimed", claimed)

    assert first_failure() is not None


def test_without_the_hold_off_after_fencing_a_promise_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A zombie claims again at once, and fences the rightful owner."""
    monkeypatch.setattr(ownership, "HOLD_OFF_SECONDS", 0.0)

    assert first_failure() is not None


def test_without_the_compare_and_swap_a_promise_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever holds the lock writes."""

    def judge(claims: Mapping[Partition, Claim], rows: Mapping[Partition, Claim]) -> dict[Partition, Verdict]:  # noqa: ARG001
        return dict.fromkeys(claims, Verdict.OURS)

    monkeypatch.setattr(ownership, "judge", judge)

    assert first_failure() is not None


def test_without_forgetting_what_was_read_ahead_a_promise_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a seek the records of another place come first."""
    monkeypatch.setattr(ReadAhead, "_forget", lambda *_: None)

    assert first_failure() is not None


def test_a_seed_is_the_same_story_in_every_process() -> None:
    command = [sys.executable, "-m", "plimsoll_devkit.simulation", "--seed", "28"]

    stories = {
        subprocess.run(
            command, env={"PYTHONHASHSEED": salt}, capture_output=True, text=True, check=True
        ).stdout.rpartition("\n1 seeds")[0]
        for salt in ("1", "2", "3")
    }

    assert len(stories) == 1
    assert "claimed" in stories.pop()
