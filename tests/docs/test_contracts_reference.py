"""The published reference is what the contracts say now."""

from pathlib import Path

from plimsoll_contracts.export import drift

ROOT = Path(__file__).parents[2]


def test_the_reference_has_not_drifted() -> None:
    assert drift(ROOT / "docs" / "reference") == []
