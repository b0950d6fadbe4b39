"""How the doctor writes figures, lists and verdicts."""

import pytest

from plimsoll_contracts.doctor import Verdict
from plimsoll_quota_enforcer.storage.doctor import counted, graded, lasting, listed


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
