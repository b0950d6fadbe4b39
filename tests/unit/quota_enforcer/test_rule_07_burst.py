"""Rule 7: parallel reserves on a limit give exactly what fits, whatever batches they come in."""

from hypothesis import given
from hypothesis import strategies as st

from plimsoll_devkit.builders import BLOG, Tenant, content, limits, release, reserve
from plimsoll_quota_enforcer.domain.model import TENANT, Gauge


def test_50_parallel_reserves_of_1_on_a_limit_of_10_give_10() -> None:
    tenant = Tenant({TENANT: limits(cpu=10)})
    decisions = tenant.batch([reserve(f"r{n}", f"d{n}", content(BLOG, cpu=1)) for n in range(50)])
    assert [decision.allowed for decision in decisions] == [True] * 10 + [False] * 40
    assert len(tenant.holds) == len(tenant.open_holds()) == 10
    tenant.batch([release(f"x{n}", f"r{n}") for n in range(10)])
    assert tenant.state.tally.usage(TENANT).total == (0,) * 9


@given(
    st.lists(st.integers(1, 90), min_size=1, max_size=20),
    st.integers(0, 100),
    st.lists(st.integers(1, 5), min_size=20, max_size=20),
)
def test_rule_7_batches_do_not_matter_and_the_sum_never_exceeds_the_limit(
    sizes: list[int], top: int, bites: list[int]
) -> None:
    asks = [reserve(f"r{n}", f"d{n}", content(cpu=size)) for n, size in enumerate(sizes)]
    at_once, in_bites = Tenant({TENANT: limits(cpu=top)}), Tenant({TENANT: limits(cpu=top)})
    together = [decision.allowed for decision in at_once.batch(asks)]
    apart: list[bool] = []
    left = list(asks)
    for bite in bites:
        apart += [decision.allowed for decision in in_bites.batch(left[:bite])]
        left = left[bite:]
    assert together == apart
    expected, total = [], 0
    for size in sizes:
        expected.append(total + size <= top)
        total += size if expected[-1] else 0
    assert together == expected
    assert at_once.total(Gauge.CPU_RESERVED) == in_bites.total(Gauge.CPU_RESERVED) == total
