"""When a process that does not get on is ended, and when it is not."""

import asyncio
from typing import Any

import pytest
from aiokafka.errors import KafkaTimeoutError
from structlog.testing import capture_logs

from plimsoll_streams import watchdog
from plimsoll_streams.ownership import Claim, Holding, Ownership, Phase
from plimsoll_streams.records import Partition
from plimsoll_streams.watchdog import STALL_SECONDS, Health, Watchdog

A = Partition("facts", 0)


def later(health: Health, seconds: float, *, lag: int = 1, outage: bool = False, committed: bool = False) -> Health:
    return health.seen(health.progressed + seconds, lag=lag, outage=outage, committed=committed)


def test_lag_without_progress_for_five_minutes_is_a_stall() -> None:
    health = later(Health(0.0), 100)

    assert not health.is_stalled(STALL_SECONDS - 1)
    assert health.is_stalled(STALL_SECONDS)


def test_a_commit_a_known_outage_and_nothing_to_do_are_progress() -> None:
    for health in (
        later(Health(0.0), 250, committed=True),
        later(Health(0.0), 250, outage=True),
        later(Health(0.0), 250, lag=0),
    ):
        assert not health.is_stalled(250 + STALL_SECONDS - 1)


def test_a_stall_after_an_outage_counts_from_its_end() -> None:
    health = later(later(Health(0.0), 1000, outage=True), 10)

    assert not health.is_stalled(1000 + STALL_SECONDS - 1)
    assert health.is_stalled(1000 + STALL_SECONDS)


class Ends:
    """A source that knows only where its log ends, or does not answer."""

    def __init__(self, end: int | None) -> None:
        self.end = end

    async def end_offsets(self, partitions: Any) -> dict[Partition, int]:
        if self.end is None:
            raise KafkaTimeoutError
        return dict.fromkeys(partitions, self.end)


async def exit_code(monkeypatch: pytest.MonkeyPatch, *, end: int | None, database_away: bool = False) -> int | None:
    """Watch for a while that is far beyond a (shortened) stall."""
    monkeypatch.setattr(watchdog, "STALL_SECONDS", 0.1)
    monkeypatch.setattr(watchdog, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(watchdog, "PROBE_SECONDS", 0.02)
    codes: list[int] = []
    source: Any = Ends(end)
    guard = Watchdog(
        source=source,
        ownership=lambda: Ownership(holdings={A: Holding(Phase.OWNED, Claim(5, 1))}),
        is_database_away=lambda: database_away,
        end=codes.append,
    )
    task = asyncio.create_task(guard.run())
    await asyncio.sleep(0.5)
    task.cancel()
    return codes[0] if codes else None


async def test_a_stalled_process_ends_and_shows_every_task(monkeypatch: pytest.MonkeyPatch) -> None:
    with capture_logs() as logs:
        code = await exit_code(monkeypatch, end=9)

    assert code == watchdog.EXIT_STALLED
    assert "test_a_stalled_process_ends_and_shows_every_task" in logs[0]["stacks"]


async def test_an_idle_process_and_one_in_an_outage_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await exit_code(monkeypatch, end=5) is None
    assert await exit_code(monkeypatch, end=None) is None
    assert await exit_code(monkeypatch, end=9, database_away=True) is None
