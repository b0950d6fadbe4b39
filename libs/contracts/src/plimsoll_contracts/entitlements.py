"""What does a plan give a tenant: the snapshot that billing publishes, whole, under a growing version."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from plimsoll_contracts.codes import INVALID_AMOUNT
from plimsoll_contracts.dimensions import Dimension, unit_of
from plimsoll_contracts.fields import Event, LimitValue, Name, Version, parse_limit
from plimsoll_contracts.quantities import QuantityError


class EntitlementSnapshot(Event):
    """Everything a plan gives one tenant at one version. A later version replaces the whole.

    ``limits`` keeps names it does not know (another service's dimensions) out of reach of the enforcer: only
    the dimensions of this platform are read. ``ended`` is a tombstone: it denies, and is not a missing row.
    """

    tenant: Name
    entitlement_version: Version
    plan: Annotated[str, Field(min_length=1, max_length=128)]
    limits: Mapping[str, LimitValue] = Field(default_factory=dict, max_length=64)
    features: Mapping[str, bool] = Field(default_factory=dict, max_length=64)
    quota_blocked: frozenset[str] = Field(default_factory=frozenset, max_length=64)
    ended: bool = False

    @field_validator("limits", mode="before")
    @classmethod
    def _read_limits(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        return {name: _read_limit(name, limit) for name, limit in value.items()}


def _read_limit(name: object, value: object) -> object:
    try:
        dimension = Dimension(str(name))
    except ValueError:
        return value
    try:
        return parse_limit(dimension, value)
    except QuantityError as error:
        code = INVALID_AMOUNT[unit_of(dimension)].code
        raise PydanticCustomError(code, "{why}", {"why": f"limits.{dimension}: {error}"[:300]}) from None
