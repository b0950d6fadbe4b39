import unicodedata
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_client.cli.figures import age, amount, bar, clean, parse_until, percent
from plimsoll_contracts.dimensions import Unit

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ünïcode 漢字", "plain ünïcode 漢字"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("a\nb\tc\x7f\x9b", "a\\x0ab\\x09c\\x7f\\x9b"),
        ("abc\u202edef\u2066", "abc\\u202edef\\u2066"),
        ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_hostile_text_is_written_out(text: str, shown: str) -> None:
    assert clean(text) == shown


@given(st.text())
def test_nothing_that_is_printed_can_act_on_a_terminal(text: str) -> None:
    assert all(c.isprintable() or unicodedata.category(c) == "Zs" for c in clean(text))
    assert not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in clean(text))


@pytest.mark.parametrize(
    ("ago", "shown"),
    [
        (timedelta(0), "0s ago"),
        (timedelta(seconds=38), "38s ago"),
        (timedelta(seconds=119), "1m ago"),
        (timedelta(hours=2, minutes=59), "2h ago"),
        (timedelta(days=400), "400d ago"),
        (timedelta(milliseconds=-400), "0s ago"),
        (timedelta(days=-3), "in 3d"),
    ],
)
def test_ages_are_in_their_largest_whole_unit(ago: timedelta, shown: str) -> None:
    assert age(NOW - ago, NOW) == shown


def test_what_never_happened_has_no_age() -> None:
    assert age(None, NOW) == "never"


@pytest.mark.parametrize(
    ("used", "held", "ceiling", "fine", "plain"),
    [
        (0, 0, 100, "░░░░░░░░", "........"),
        (50, 0, 100, "████░░░░", "####...."),
        (50, 25, 100, "████▒▒░░", "####++.."),
        (100, 0, 100, "████████", "########"),
        (900, 900, 100, "████████", "########"),
        (55, 0, 100, "████▍░░░", "#####..."),
        (0, 0, 0, "░░░░░░░░", "........"),
        (1, 0, 0, "████████", "########"),
        (5, 5, None, "        ", "        "),
    ],
)
def test_bars(used: int, held: int, ceiling: int | None, fine: str, plain: str) -> None:
    assert bar(used, held, ceiling, width=8) == fine
    assert bar(used, held, ceiling, width=8, fine=False) == plain


@given(st.integers(0, 10**15), st.integers(0, 10**15), st.integers(0, 10**15), st.booleans())
def test_a_bar_is_as_wide_as_it_was_asked_to_be(used: int, held: int, ceiling: int, fine: bool) -> None:
    assert len(bar(used, held, ceiling, width=16, fine=fine)) == 16


def test_shares_and_amounts() -> None:
    assert [percent(*pair) for pair in ((37, 40), (41, 40), (0, 0), (1, 0), (1, None))] == [
        "92 %",
        "102 %",
        "0 %",
        "over",
        "-",
    ]
    assert amount(Unit.BYTES, 8 << 30) == "8GiB"
    assert amount(Unit.MILLICORES, "unlimited") == "unlimited"
    assert amount(Unit.COUNT, None) == "-"


def test_ends_are_read_as_spans_or_times() -> None:
    assert parse_until("2h", NOW) == NOW + timedelta(hours=2)
    assert parse_until("1w", NOW) == NOW + timedelta(days=7)
    assert parse_until("2026-12-24T18:00+01:00", NOW) == datetime(2026, 12, 24, 17, tzinfo=UTC)
    assert parse_until("2026-12-24", NOW).astimezone().date().isoformat() == "2026-12-24"


@pytest.mark.parametrize("text", ["", "soon", "0h", "2", "-2h", "2026-13-01", "2026-11-30"])
def test_what_is_no_future_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no time|in the past"):
        parse_until(text, NOW)
