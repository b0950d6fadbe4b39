"""Rows are written as array literals: whatever a cell holds, the database reads the same."""

from datetime import UTC, datetime

import asyncpg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_devkit.stack.database import Database
from plimsoll_devkit.stack.private import LoopThread
from plimsoll_quota_enforcer.storage.rows import literals

QUERY = """SELECT * FROM unnest(
$1::text::text[], $2::text::bigint[], $3::text::bytea[], $4::text::boolean[], $5::text::timestamptz[])"""

texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
awkward = st.sampled_from(['"', "\\", "{}", "NULL", "null", ",", "", " ", '{"a":"\\u00e9\\\\"}', "\n", "'"])
instants = st.datetimes(datetime(1971, 1, 1), datetime(2900, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
rows = st.tuples(
    st.none() | texts | awkward,
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.binary(),
    st.none() | st.booleans(),
    st.none() | instants,
)


def test_a_row_comes_back_as_it_went(database: Database, stack_thread: LoopThread) -> None:
    connection = stack_thread.run(asyncpg.connect(database.dsn(), timeout=10))

    @settings(max_examples=300, deadline=None)
    @given(st.lists(rows, min_size=1, max_size=8))
    def come_back(cells: list[tuple[object, ...]]) -> None:
        found = stack_thread.run(connection.fetch(QUERY, *literals(cells)))
        assert [tuple(row) for row in found] == cells

    come_back()
    stack_thread.run(connection.close())


def test_a_zero_byte_is_refused_before_it_could_part_a_cell_in_two() -> None:
    for column in (["a\0b"], ["a", "b\0", "c"], [None, "\0"]):
        with pytest.raises(ValueError, match="zero byte"):
            literals([(cell,) for cell in column])
