"""Which of two states of one thing holds: the rule by which every projection here is ordered, without a clock."""

from enum import StrEnum


class Standing(StrEnum):
    """How a state that was told stands to the one that is known."""

    APPLIED = "applied"
    """It is newer, and replaces what was known."""
    STALE = "stale"
    REPEATED = "repeated"
    """The known version with the known body."""
    CONFLICT = "conflict"
    """The known version with another body: kept out, since which of the two is right cannot be known here."""


def standing(known: tuple[int, object] | None, told: tuple[int, object]) -> Standing:
    """Compare (version, body) of what is told with what is known, if anything is."""
    if known is None or told[0] > known[0]:
        return Standing.APPLIED
    if told[0] < known[0]:
        return Standing.STALE
    return Standing.REPEATED if told[1] == known[1] else Standing.CONFLICT
