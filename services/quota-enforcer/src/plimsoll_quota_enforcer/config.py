"""What is the enforcer told from outside, with its defaults and units."""

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from plimsoll_quota_enforcer.domain.model import Multipliers
from plimsoll_quota_enforcer.domain.state import Policy
from plimsoll_runtime.config import ServiceSettings

Milli = Annotated[int, Field(ge=1000, le=10_000)]


class EnforcerSettings(ServiceSettings):
    """Settings of one enforcer process."""

    entitlements: Literal["off", "expected"] = "expected"
    reservation_multiplier_milli: Milli = 1000
    limit_multiplier_milli: Milli = 1500
    window_hours: Annotated[int, Field(ge=1, le=24 * 7)] = 24
    retention_days: Annotated[int, Field(ge=8, le=3650)] = 35
    sweep_seconds: Annotated[float, Field(ge=0.1, le=5)] = 1.0
    """How often expired holds of idle tenants are looked for."""
    batch_records_max: Annotated[int, Field(ge=1, le=5000)] = 500
    cache_rows_max: Annotated[int, Field(ge=1000)] = 200_000
    """Charges and open holds of cached tenants together, about 0.5 KiB each."""

    def policy(self) -> Policy:
        """Return what holds for every tenant."""
        return Policy(
            multipliers=Multipliers(self.reservation_multiplier_milli, self.limit_multiplier_milli),
            entitlements_expected=self.entitlements == "expected",
            window=timedelta(hours=self.window_hours),
        )
