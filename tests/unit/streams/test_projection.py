"""The newest version wins in any order; tombstones are states; contradictions are kept out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_streams.projection import Version, VersionedTable, fold

versions = st.builds(
    Version, key=st.sampled_from("ab"), version=st.integers(1, 6), body=st.sampled_from([None, "x", "y"])
)


def test_newer_is_written_older_is_dropped_the_same_is_nothing_new() -> None:
    stored = {"a": Version("a", 3, "x"), "b": Version("b", 3, "x")}

    folded = fold([Version("a", 4, None), Version("b", 2, "y"), Version("b", 3, "x")], stored)

    assert folded.newer == (Version("a", 4, None),)
    assert (folded.stale, folded.repeated, folded.conflicts) == (1, 1, ())


def test_an_equal_version_with_another_body_is_kept_out() -> None:
    folded = fold([Version("a", 3, "y"), Version("a", 3, None)], {"a": Version("a", 3, "x")})

    assert folded.newer == ()
    assert folded.conflicts == (Version("a", 3, "y"), Version("a", 3, None))


def test_a_tombstone_is_not_a_missing_row() -> None:
    assert fold([Version("a", 1, "x")], {"a": Version("a", 2, None)}).newer == ()


@given(st.lists(versions, max_size=12), st.randoms())
def test_order_does_not_matter(changes: list[Version], shuffler: object) -> None:
    # One body per version: which of two contradicting bodies comes first is allowed to matter.
    agreed = [Version(each.key, each.version, f"{each.key}{each.version}") for each in changes]
    other = list(agreed)
    shuffler.shuffle(other)  # type: ignore[attr-defined]

    assert fold(agreed, {}).newer == fold(other, {}).newer
    assert not fold(other, {}).conflicts


@given(st.lists(versions, max_size=12), st.integers(0, 12))
def test_batches_come_to_the_same_as_one(changes: list[Version], cut: int) -> None:
    first = fold(changes[:cut], {})
    stored = {each.key: each for each in first.newer}
    second = fold(changes[cut:], stored)
    stored |= {each.key: each for each in second.newer}

    whole = fold(changes, {})

    assert stored == {each.key: each for each in whole.newer}
    counted = len(whole.newer) + whole.stale + whole.repeated + len(whole.conflicts)
    assert counted == len(changes)


def test_names_that_may_not_stand_in_sql_are_refused() -> None:
    with pytest.raises(ValueError, match="not an identifier"):
        VersionedTable("t; drop table t")
