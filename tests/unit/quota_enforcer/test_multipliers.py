"""Multipliers: request, app file, config, built-in, and nobody outside widens beyond the platform's bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_contracts import codes
from plimsoll_contracts.requests import MultiplierTerms
from plimsoll_quota_enforcer.domain.model import BUILT_IN, Multipliers
from plimsoll_quota_enforcer.domain.multipliers import Bounds, MultiplierOutOfBounds, Terms, resolve_multipliers

WIDE = Bounds(100, 100_000)
NONE = Bounds(1000, 1500)


def terms(reservation: int | None = None, limit: int | None = None) -> MultiplierTerms:
    return MultiplierTerms(reservation_milli=reservation, limit_milli=limit)


@pytest.mark.parametrize(
    ("request_says", "app_says", "config_says", "expected"),
    [
        (None, None, None, (1000, 1500)),
        (terms(), terms(), None, (1000, 1500)),
        (None, None, Multipliers(1200, 2000), (1200, 2000)),
        (None, terms(1100, 1800), Multipliers(1200, 2000), (1100, 1800)),
        (terms(1050, 1700), terms(1100, 1800), Multipliers(1200, 2000), (1050, 1700)),
        (terms(limit=1700), terms(reservation=1100), Multipliers(1200, 2000), (1100, 1700)),
        (terms(reservation=1300), terms(limit=1600), None, (1300, 1600)),
        (None, None, terms(limit=3000), (1000, 3000)),
    ],
)
def test_the_first_that_says_so_holds(
    request_says: Terms | None, app_says: Terms | None, config_says: Terms | None, expected: tuple[int, int]
) -> None:
    assert resolve_multipliers(request_says, app_says, config_says, WIDE) == Multipliers(*expected)


@pytest.mark.parametrize("outside", [terms(reservation=999), terms(limit=1501), terms(500, 3000)])
def test_neither_request_nor_app_file_widens_beyond_the_bounds(outside: Terms) -> None:
    for request_says, app_says in ((outside, None), (None, outside), (outside, terms(1000, 1500))):
        with pytest.raises(MultiplierOutOfBounds) as refused:
            resolve_multipliers(request_says, app_says, None, NONE)
        assert (refused.value.code, refused.value.code.status) == (codes.MULTIPLIER_OUT_OF_BOUNDS, 422)
        assert "_milli is " in refused.value.detail


def test_an_app_file_that_the_request_overrides_does_no_harm() -> None:
    assert resolve_multipliers(terms(1000, 1500), terms(500, 3000), None, NONE) == BUILT_IN


def test_the_platforms_own_are_never_out_of_bounds() -> None:
    ours = Multipliers(800, 4000)
    assert resolve_multipliers(None, None, ours, NONE) == ours
    assert resolve_multipliers(terms(800, 4000), None, ours, NONE) == ours
    with pytest.raises(MultiplierOutOfBounds):
        resolve_multipliers(terms(799, 4000), None, ours, NONE)


def test_a_bound_itself_is_allowed_and_narrowing_always_is() -> None:
    assert resolve_multipliers(terms(700, 2500), None, None, Bounds(700, 2500)) == Multipliers(700, 2500)
    assert resolve_multipliers(terms(100_000, 100), None, None, NONE) == Multipliers(100_000, 100)


milli = st.none() | st.integers(100, 100_000)
said = st.none() | st.builds(terms, milli, milli)
bounds = st.builds(Bounds, st.integers(100, 100_000), st.integers(100, 100_000))


@given(said, said, said, bounds)
def test_what_is_resolved_is_the_first_told_and_within_bounds_or_ours(
    request_says: Terms | None, app_says: Terms | None, config_says: Terms | None, within: Bounds
) -> None:
    order = [one for one in (request_says, app_says, config_says, BUILT_IN) if one is not None]
    reservation = next(one.reservation_milli for one in order if one.reservation_milli is not None)
    limit = next(one.limit_milli for one in order if one.limit_milli is not None)
    ours = resolve_multipliers(None, None, config_says, within)
    fits = reservation >= min(within.reservation_min_milli, ours.reservation_milli) and limit <= max(
        within.limit_max_milli, ours.limit_milli
    )
    if fits:
        assert resolve_multipliers(request_says, app_says, config_says, within) == Multipliers(reservation, limit)
    else:
        with pytest.raises(MultiplierOutOfBounds):
            resolve_multipliers(request_says, app_says, config_says, within)


@given(said, said, said, bounds, st.integers(0, 50_000))
def test_wider_bounds_never_refuse_more(
    request_says: Terms | None, app_says: Terms | None, config_says: Terms | None, within: Bounds, more: int
) -> None:
    wider = Bounds(within.reservation_min_milli - more, within.limit_max_milli + more)
    try:
        found = resolve_multipliers(request_says, app_says, config_says, within)
    except MultiplierOutOfBounds:
        return
    assert resolve_multipliers(request_says, app_says, config_says, wider) == found
