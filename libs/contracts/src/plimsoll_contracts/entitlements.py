"""What does a plan give a tenant: the snapshot that billing publishes, whole, under a growing version."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, StringConstraints, WithJsonSchema, field_serializer, field_validator
from pydantic_core import PydanticCustomError

from plimsoll_contracts.codes import INVALID_AMOUNT, INVALID_COUNT
from plimsoll_contracts.dimensions import REGISTRY, DimensionInfo, EntitlementClass, Unit
from plimsoll_contracts.fields import TEXT_PATTERN, UNLIMITED, Event, Flag, LimitValue, Name, Version
from plimsoll_contracts.quantities import AMOUNT_PATTERNS, MAX_AMOUNT, QuantityError, parse

_FEATURES = tuple(name for name, info in REGISTRY.items() if info.entitlement_class is EntitlementClass.FEATURE)
_AMOUNTS = {name: info for name, info in REGISTRY.items() if name not in _FEATURES}


def _limit_schema(info: DimensionInfo) -> dict[str, Any]:
    pattern = AMOUNT_PATTERNS.get(info.unit, AMOUNT_PATTERNS[Unit.COUNT])
    amount = {"type": "integer", "minimum": 0, "maximum": MAX_AMOUNT}
    return {"anyOf": [amount, {"type": "string", "pattern": pattern}, {"const": UNLIMITED}]}


_LimitsInput = Annotated[
    dict[str, Any],
    WithJsonSchema({"type": "object", "properties": {name: _limit_schema(info) for name, info in _AMOUNTS.items()}}),
]
_FeaturesInput = Annotated[
    dict[str, Any],
    WithJsonSchema({"type": "object", "properties": {name: {"type": "boolean"} for name in sorted(_FEATURES)}}),
]


class EntitlementSnapshot(Event):
    """Everything a plan gives one tenant at one version. A later version replaces the whole.

    Names that are in no registry of ours (another platform's dimensions and features) are dropped unread, whatever
    their values look like: what billing adds for others must not cost a tenant its snapshot.
    A feature that is not named is not withheld: ``deployments`` denies where it is false, and passes where it is
    absent, which is no fail-open and is not counted. ``ended`` is a tombstone: it denies, and is not a missing row.
    """

    tenant: Name
    entitlement_version: Version
    plan: Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=TEXT_PATTERN)]
    limits: Mapping[str, LimitValue] = Field(default_factory=dict)
    features: Mapping[str, Flag] = Field(default_factory=dict)
    quota_blocked: frozenset[str] = Field(default_factory=frozenset)
    ended: Flag = False

    @field_validator("limits", mode="before", json_schema_input_type=_LimitsInput)
    @classmethod
    def _read_limits(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        # In the registry's order, so that equal snapshots have equal bytes.
        return {name: _read_limit(info, value[name]) for name, info in _AMOUNTS.items() if name in value}

    @field_validator("features", mode="before", json_schema_input_type=_FeaturesInput)
    @classmethod
    def _keep_known_features(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        return {name: value[name] for name in _FEATURES if name in value}

    @field_validator("quota_blocked", mode="after")
    @classmethod
    def _keep_known_dimensions(cls, value: frozenset[str]) -> frozenset[str]:
        return value & REGISTRY.keys()

    @field_serializer("quota_blocked")
    def _in_order(self, value: frozenset[str]) -> list[str]:
        """Write a set always in the same order, so that equal snapshots have equal bytes."""
        return sorted(value)


def _read_limit(info: DimensionInfo, value: object) -> LimitValue:
    if value == UNLIMITED:
        return UNLIMITED
    try:
        return parse(info.unit, value)
    except QuantityError as error:
        code = INVALID_AMOUNT.get(info.unit, INVALID_COUNT).code
        raise PydanticCustomError(code, "{why}", {"why": f"limits.{info.name}: {error}"[:300]}) from None
