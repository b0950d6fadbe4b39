"""How amounts are written: one strict parser, one formatter, no floats."""

import math
import re
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_contracts.dimensions import Unit
from plimsoll_contracts.quantities import (
    AMOUNT_PATTERNS,
    MAX_AMOUNT,
    QuantityError,
    parse,
    render,
    scale_down,
    scale_up,
)

CPU, BYTES, COUNT = Unit.MILLICORES, Unit.BYTES, Unit.COUNT
units = st.sampled_from([CPU, BYTES, COUNT])
amounts = st.integers(0, MAX_AMOUNT) | st.builds(lambda n, p: n << 10 * p, st.integers(0, 7), st.integers(0, 5))


@pytest.mark.parametrize(
    ("unit", "written", "expected"),
    [
        (CPU, "0.5", 500),
        (CPU, "1", 1000),
        (CPU, "2500m", 2500),
        (CPU, "0", 0),
        (CPU, "0.001", 1),
        (CPU, "1.05", 1050),
        (CPU, 250, 250),
        (BYTES, "512m", 536_870_912),
        (BYTES, "8g", 8_589_934_592),
        (BYTES, "1t", 1_099_511_627_776),
        (BYTES, "8G", 8_589_934_592),
        (BYTES, "8GiB", 8_589_934_592),
        (BYTES, "8gb", 8_589_934_592),
        (BYTES, "1k", 1024),
        (BYTES, "7", 7),
        (BYTES, "7B", 7),
        (BYTES, "7P", 7 << 50),
        (BYTES, MAX_AMOUNT, MAX_AMOUNT),
        (COUNT, "12", 12),
        (COUNT, 0, 0),
        (COUNT, 2**31 + 1, 2**31 + 1),  # T74
    ],
)
def test_amounts(unit: Unit, written: object, expected: int) -> None:
    assert parse(unit, written) == expected


# T73, T74 and T75 of the cases, and what else a lax parser would let through.
NEVER = ["", " ", "1e3", "NaN", "nan", "inf", "-1", "+1", " 1", "1 ", "1_000", "\u0663", "1\n", "0x10", "1,5", "1\0"]
NEVER += ["\u00bd", "1\u00b2", "\uff11", "unlimited", "true", "9" * 17, "9" * 5000, "--1", "1.", ".5", "1..5"]
BAD: dict[Unit, list[object]] = {
    CPU: [*NEVER, "0.0005", "1 m", "500M", "1k", "-500m", "0.5m", "1.5.0", "m", "9007199254740992m", "9" * 16],
    BYTES: [*NEVER, "1 Gi", "1.5g", "400mi b", "g", "1e", "1bb", "1ib", "1gg", "1\u212a", "1k\u0131b", "9000000000p"],
    COUNT: [*NEVER, "1k", "1m", "1.0", "9007199254740992"],
}
WRONG_TYPES: list[object] = [None, True, False, 1.0, 0.5, math.nan, math.inf, [], {}, b"1", [1]]
OUT_OF_RANGE: list[object] = [-1, MAX_AMOUNT + 1, 2**63, 10**5000]


@pytest.mark.parametrize(
    ("unit", "written"),
    [(unit, text) for unit, texts in BAD.items() for text in [*texts, *WRONG_TYPES, *OUT_OF_RANGE]],
    ids=lambda value: f"{type(value).__name__}-{len(value) if isinstance(value, str | bytes) else ''}",
)
def test_bad_spellings_are_refused(unit: Unit, written: object) -> None:
    with pytest.raises(QuantityError) as refused:
        parse(unit, written)
    assert refused.value.unit is unit
    assert len(str(refused.value)) < 300


def test_milli_is_a_unit_of_cpu_only() -> None:
    """T73: "400m" of memory is 400 MiB, never 0.4 bytes."""
    assert parse(CPU, "400m") == 400
    assert parse(BYTES, "400m") == 400 << 20
    with pytest.raises(QuantityError):
        parse(COUNT, "400m")


@settings(deadline=None)
@given(units, amounts)
def test_what_is_rendered_is_read_back(unit: Unit, amount: int) -> None:
    assert parse(unit, render(unit, amount)) == amount
    assert parse(unit, amount) == amount


@settings(deadline=None)
@given(units, st.text(max_size=24) | st.from_regex(r"[0-9.]{1,18}[kmgtpibKMGTPIB]{0,3}", fullmatch=True))
def test_the_published_grammar_is_the_parsers(unit: Unit, text: str) -> None:
    matches = re.fullmatch(AMOUNT_PATTERNS[unit].strip("^$"), text) is not None
    try:
        amount = parse(unit, text)
    except QuantityError as error:
        assert not matches or "above" in str(error)  # noqa: PT017 - both outcomes are expected
    else:
        assert matches
        assert 0 <= amount <= MAX_AMOUNT


@settings(deadline=None)
@given(st.from_regex(r"[0-9]{1,12}\.[0-9]{1,3}", fullmatch=True))
def test_cores_are_read_exactly(text: str) -> None:
    assert parse(CPU, text) == Fraction(text) * 1000


@pytest.mark.parametrize(
    ("unit", "amount", "written"),
    [
        (CPU, 4000, "4000m"),
        (BYTES, 0, "0B"),
        (BYTES, 1023, "1023B"),
        (BYTES, 8 << 30, "8GiB"),
        (BYTES, 1025, "1025B"),
        (BYTES, 3 << 50, "3PiB"),
        (COUNT, 12, "12"),
        (Unit.SECONDS, 60, "60"),
    ],
)
def test_the_one_spelling_that_is_shown(unit: Unit, amount: int, written: str) -> None:
    assert render(unit, amount) == written


@settings(deadline=None)
@given(st.integers(0, MAX_AMOUNT), st.integers(1, 100_000))
def test_charges_round_up_and_limits_down(amount: int, milli: int) -> None:
    exact = Fraction(amount * milli, 1000)
    assert scale_up(amount, milli) == math.ceil(exact)
    assert scale_down(amount, milli) == math.floor(exact)
