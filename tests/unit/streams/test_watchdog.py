"""When a process that does not get on is ended, and when it is not."""

from plimsoll_streams.watchdog import STALL_SECONDS, Health


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
