"""What is the enforcer told from outside, with its defaults and units."""

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field, field_validator

from plimsoll_contracts.dimensions import Dimension, unit_of
from plimsoll_contracts.quantities import parse
from plimsoll_quota_enforcer.domain.model import Multipliers
from plimsoll_quota_enforcer.domain.multipliers import Bounds
from plimsoll_quota_enforcer.domain.state import Policy, Threshold
from plimsoll_runtime.config import ServiceSettings

_PERCENT_MAX = 1000

Milli = Annotated[int, Field(ge=1000, le=10_000)]


class EnforcerSettings(ServiceSettings):
    """Settings of one enforcer process."""

    entitlements: Literal["off", "expected"] = "expected"
    reservation_multiplier_milli: Milli = 1000
    limit_multiplier_milli: Milli = 1500
    reservation_multiplier_min_milli: Annotated[int, Field(ge=100, le=10_000)] | None = None
    """The least that a request may have its reservations charged at; the platform's own where it is not set."""
    limit_multiplier_max_milli: Annotated[int, Field(ge=1000, le=100_000)] | None = None
    """The most that a request may over-subscribe limits; the platform's own where it is not set."""
    require_resources: bool = False
    """Refuse to check or reserve a compose file with a service that says nothing of its cpu, or of its memory."""
    thresholds: tuple[str, ...] = ("80%", "100%")
    """Marks of a limit that are told when usage reaches them: shares (80%) or amounts (stacks=9)."""
    wait_seconds_max: Annotated[int, Field(ge=0, le=3600)] = 300
    """Nobody waits longer for room, whatever is asked."""
    waiters_max: Annotated[int, Field(ge=0, le=1000)] = 100
    """How many requests of one tenant may wait at once."""
    window_hours: Annotated[int, Field(ge=1, le=24 * 7)] = 24
    retention_days: Annotated[int, Field(ge=8, le=3650)] = 35
    sweep_seconds: Annotated[float, Field(ge=0.1, le=5)] = 1.0
    """How often expired holds of idle tenants are looked for."""
    batch_records_max: Annotated[int, Field(ge=1, le=5000)] = 500
    cache_rows_max: Annotated[int, Field(ge=1000)] = 200_000
    """Charges and open holds of cached tenants together, about 0.5 KiB each."""

    @field_validator("thresholds")
    @classmethod
    def _are_thresholds(cls, thresholds: tuple[str, ...]) -> tuple[str, ...]:
        for each in thresholds:
            _threshold(each)
        return thresholds

    def policy(self) -> Policy:
        """Return what holds for every tenant."""
        return Policy(
            multipliers=Multipliers(self.reservation_multiplier_milli, self.limit_multiplier_milli),
            bounds=Bounds(
                self.reservation_multiplier_min_milli or self.reservation_multiplier_milli,
                self.limit_multiplier_max_milli or self.limit_multiplier_milli,
            ),
            require_resources=self.require_resources,
            thresholds=tuple(map(_threshold, self.thresholds)),
            wait_seconds_max=self.wait_seconds_max,
            waiters_max=self.waiters_max,
            entitlements_expected=self.entitlements == "expected",
            window=timedelta(hours=self.window_hours),
        )


def _threshold(text: str) -> Threshold:
    """Read ``80%`` or ``stacks=9``.

    Raises:
        ValueError: it is neither.
    """
    name, equals, amount = text.strip().partition("=")
    if not equals and name.endswith("%") and name[:-1].isdigit() and 0 < int(name[:-1]) <= _PERCENT_MAX:
        return Threshold(name, percent=int(name[:-1]))
    if equals and name in set(Dimension):
        return Threshold(text.strip(), dimension=Dimension(name), amount=parse(unit_of(Dimension(name)), amount))
    raise ValueError(f"{text!r} is no threshold: write 80% or stacks=9")
