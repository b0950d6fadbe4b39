"""Who may write a partition, step by step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_streams.ownership import (
    HOLD_OFF_SECONDS,
    RECHECK_SECONDS,
    Claim,
    Ownership,
    Phase,
    Slice,
    Verdict,
    judge,
    select_fresh,
)
from plimsoll_streams.records import Partition, Record

A, B = Partition("facts", 0), Partition("facts", 1)


def record(offset: int, partition: Partition = A) -> Record:
    return Record(partition.topic, partition.number, offset, b"k", b"v")


CLAIM = Claim(5, 2)


def owned(claim: Claim = CLAIM) -> Ownership:
    claiming = Ownership().assigned([A]).claiming([A])
    return claiming.claimed(claiming.generation, {A: claim}, {A: (0, 100)}, now=0)


def test_an_assignment_is_claimable_and_not_yet_owned() -> None:
    ownership = Ownership().assigned([B, A])

    assert ownership.claimable(now=0) == (A, B)
    assert ownership.claims() == {}


def test_what_is_being_claimed_is_not_claimed_twice() -> None:
    assert Ownership().assigned([A]).claiming([A]).claimable(now=1e9) == ()


def test_a_claim_makes_an_owner() -> None:
    assert owned().claims() == {A: Claim(5, 2)}


@pytest.mark.parametrize("reassigned", [False, True])
def test_a_claim_answered_after_a_rebalance_is_void(reassigned: bool) -> None:
    claiming = Ownership().assigned([A]).claiming([A])
    after = claiming.revoked().assigned([A]) if reassigned else claiming.revoked()

    assert after.claimed(claiming.generation, {A: Claim(5, 2)}, {A: (0, 100)}, now=0) == after


def test_a_row_that_was_locked_is_claimed_at_the_next_try() -> None:
    claiming = Ownership().assigned([A, B]).claiming([A, B])
    log = {A: (0, 100), B: (0, 100)}

    after = claiming.claimed(claiming.generation, {A: Claim(5, 2)}, log, now=0)

    assert after.claims() == {A: Claim(5, 2)}
    assert after.claimable(now=0) == (B,)


def test_a_failed_claim_is_tried_again() -> None:
    claiming = Ownership().assigned([A]).claiming([A])

    assert claiming.claim_failed(claiming.generation, [A]).claimable(now=0) == (A,)
    assert claiming.revoked().claim_failed(claiming.generation, [A]).holdings == {}


@pytest.mark.parametrize(("first", "end"), [(6, 100), (0, 4)])
def test_an_offset_outside_its_log_is_refused_and_looked_at_again(first: int, end: int) -> None:
    claiming = Ownership().assigned([A]).claiming([A])

    after = claiming.claimed(claiming.generation, {A: Claim(5, 2)}, {A: (first, end)}, now=10)

    assert after.holdings[A].phase is Phase.REFUSED
    assert "5" in after.holdings[A].why
    assert after.claims() == {}
    assert after.claimable(now=10 + RECHECK_SECONDS - 1) == ()
    assert after.claimable(now=10 + RECHECK_SECONDS) == (A,)


@pytest.mark.parametrize(("first", "end"), [(5, 5), (0, 5), (5, 100)])
def test_an_offset_at_either_end_of_its_log_is_inside(first: int, end: int) -> None:
    claiming = Ownership().assigned([A]).claiming([A])

    after = claiming.claimed(claiming.generation, {A: Claim(5, 2)}, {A: (first, end)}, now=0)

    assert after.holdings[A].phase is Phase.OWNED


def test_a_fenced_partition_is_held_off_for_a_while() -> None:
    after = owned().fenced(A, epoch=2, now=10)

    assert after.claims() == {}
    assert after.claimable(now=10 + HOLD_OFF_SECONDS - 1) == ()
    assert after.claimable(now=10 + HOLD_OFF_SECONDS) == (A,)


def test_a_new_assignment_ends_the_hold_off() -> None:
    assert owned().fenced(A, epoch=2, now=10).revoked().assigned([A]).claimable(now=10) == (A,)


def test_an_older_batch_fences_and_advances_nothing() -> None:
    ownership = owned(Claim(5, 2))

    assert ownership.fenced(A, epoch=1, now=0) is ownership
    assert ownership.advanced(A, 1, 99) is ownership


def test_a_commit_advances_the_claim() -> None:
    assert owned().advanced(A, 2, 9).claims() == {A: Claim(9, 2)}
    assert owned().revoked().advanced(A, 2, 9).claims() == {}


def test_a_paused_partition_stays_paused_over_rebalances() -> None:
    after = owned().stopped(A, "bugs").revoked().assigned([A, B])

    assert after.holdings[A].phase is Phase.PAUSED
    assert after.claimable(now=1e9) == (B,)


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (Claim(5, 2), Verdict.OURS),
        (Claim(9, 2), Verdict.APPLIED),
        (Claim(5, 3), Verdict.FENCED),
        (Claim(9, 3), Verdict.FENCED),
        (Claim(5, 1), Verdict.FENCED),
        (Claim(4, 2), Verdict.FENCED),
        (None, Verdict.FENCED),
    ],
)
def test_a_locked_row_is_ours_applied_or_anothers(row: Claim | None, verdict: Verdict) -> None:
    assert judge({A: Claim(5, 2)}, {} if row is None else {A: row}) == {A: verdict}


def test_what_was_applied_is_dropped_and_gaps_are_found() -> None:
    batch = {A: [record(n) for n in (3, 4, 5, 6)], B: [record(n, B) for n in (8, 9)]}

    selection = select_fresh(batch, {A: Claim(5, 2), B: Claim(7, 1)})

    assert [[each.offset for each in part.records] for part in selection.slices] == [[5, 6], [8, 9]]
    assert (selection.replayed, selection.unclaimed, selection.gaps) == (2, 0, (B,))


def test_what_is_not_owned_is_not_applied() -> None:
    selection = select_fresh({A: [record(5)]}, {})

    assert (selection.slices, selection.unclaimed) == ((), 1)


@given(st.lists(st.integers(0, 30), unique=True, min_size=1).map(sorted), st.integers(0, 31))
def test_a_selection_is_exactly_what_is_not_applied(offsets: list[int], next_offset: int) -> None:
    selection = select_fresh({A: [record(offset) for offset in offsets]}, {A: Claim(next_offset, 1)})

    kept = [each.offset for part in selection.slices for each in part.records]
    assert kept == [offset for offset in offsets if offset >= next_offset]
    assert selection.replayed == len(offsets) - len(kept)


@given(st.lists(st.integers(5, 40), unique=True, min_size=2).map(sorted))
def test_halves_follow_each_other(offsets: list[int]) -> None:
    whole = Slice(A, Claim(5, 2), [record(offset) for offset in offsets])

    first, second = whole.halves()

    assert [*first.records, *second.records] == list(whole.records)
    assert (first.claim, second.claim, second.target) == (whole.claim, Claim(first.target, 2), whole.target)
