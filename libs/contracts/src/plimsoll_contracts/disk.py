"""What does the disk scanner tell, and what is it asked: measurements of scopes, and requests to measure."""

from typing import Annotated

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from plimsoll_contracts.fields import (
    NO_ROLL_UP,
    TEXT_PATTERN,
    Bytes,
    Event,
    Flag,
    Instant,
    Name,
    Revision,
    Version,
    refuse_roll_up,
)


class DiskMeasured(Event):
    """One scope as it was measured. Of two, the later by (term, scan) holds; no clock is compared."""

    model_config = ConfigDict(json_schema_extra=NO_ROLL_UP)

    tenant: Name
    environment: Name | None = None
    stack: Name | None = None
    bytes: Bytes | None
    """None is unknown, never 0."""
    method: Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=TEXT_PATTERN)]
    complete: Flag
    """An incomplete measurement never lowers a figure."""
    term: Version
    """Of the scanner's leadership: a deposed leader's is lower."""
    scan: Revision
    """Counts up within a term."""
    measured_at: Instant

    @model_validator(mode="after")
    def _is_no_roll_up(self) -> "DiskMeasured":
        refuse_roll_up(self.environment, self.stack)
        return self


class DiskScanRequested(Event):
    """Measure this scope soon: its figure is probably too high."""

    tenant: Name
    environment: Name | None = None
    stack: Name | None = None
    reason: str = Field(max_length=200)
    requested_at: Instant
