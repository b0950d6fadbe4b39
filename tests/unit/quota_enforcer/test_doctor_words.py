"""How the doctor writes figures, lists and verdicts; and what it says of a process by its own account of itself."""

from typing import Any

import pytest

from plimsoll_contracts.doctor import Verdict
from plimsoll_quota_enforcer.api.doctor import _check
from plimsoll_quota_enforcer.domain.state import Policy
from plimsoll_quota_enforcer.storage.doctor import Examined, counted, graded, lasting, listed


@pytest.mark.parametrize(
    ("names", "total", "told"),
    [
        ([], None, ""),
        (["a", "b", "c"], None, "a, b, c"),
        (["a", "b", "c", "d"], None, "a, b, c and 1 more"),
        (["a", "b", "c", "d"], 1500, "a, b, c and 1,497 more"),
        (["a"], 1, "a"),
    ],
)
def test_a_list_says_how_many_it_leaves_out(names: list[str], total: int | None, told: str) -> None:
    assert listed(names, total) == told


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.04, "0.0 s"), (119, "119.0 s"), (120, "2 min"), (7200, "2 h"), (900_000, "10 d")]
)
def test_a_length_of_time_is_in_the_unit_that_people_take(seconds: float, told: str) -> None:
    assert lasting(seconds) == told


def test_counts_and_grades() -> None:
    assert counted(1, "process", "processes") == "1 process"
    assert counted(2_000, "process", "processes") == "2,000 processes"
    ok, warn, fail = Verdict.OK, Verdict.WARN, Verdict.FAIL
    assert [graded(value, 10, 60) for value in (9.9, 10, 59, 60)] == [ok, warn, warn, fail]


@pytest.mark.parametrize(
    ("status", "verdict", "told"),
    [
        ({"stalled_seconds": 0.0}, "ok", "me-0 gets on"),
        ({"stalled_seconds": 31.0}, "warn", "me-0 has not got on for 31.0 s"),
        ({"stalled_seconds": 240.0}, "fail", "me-0 has not got on for 4 min"),
        ({"database_away": True, "broker_away": True}, "warn", "me-0 waits for database and broker"),
    ],
)
async def test_a_process_that_does_not_get_on(status: dict[str, Any], verdict: str, told: str) -> None:
    """The engine ends such a process by itself; a test of its own makes it stall."""
    nothing: Any = None
    examined = Examined(nothing, Policy(), "", (), lambda: {"instance": "me-0", **status})
    found = await _check("progress", examined)
    assert (found.verdict, found.told) == (verdict, told)


async def test_partitions_that_are_not_read_on() -> None:
    nothing: Any = None
    owned = {"phase": "owned", "why": ""}

    def examined(**partitions: dict[str, str]) -> Examined:
        return Examined(nothing, Policy(), "", (), lambda: {"instance": "me-0", "partitions": partitions})

    assert (await _check("stopped", examined(a=owned))).told == "1 partition of me-0, all read on"
    claiming = await _check("stopped", examined(a=owned, b={"phase": "claiming", "why": ""}))
    assert (claiming.verdict, claiming.told) == ("warn", "1 of 2 partitions of me-0 not owned yet: b")
    paused = await _check("stopped", examined(a=owned, b={"phase": "paused", "why": "ten bugs"}))
    assert (paused.verdict, paused.told) == ("fail", "1 partition not read on: b paused: ten bugs")
