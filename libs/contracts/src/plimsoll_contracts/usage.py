"""What is known to run: a settle told as an event by the deployment's owner."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Field, WithJsonSchema, field_validator, model_validator

from plimsoll_contracts.dimensions import REGISTRY
from plimsoll_contracts.fields import NO_ROLL_UP, Bytes, Count, Event, Id, Millicores, Name, Revision, refuse_roll_up
from plimsoll_contracts.quantities import MAX_AMOUNT
from plimsoll_contracts.requests import Footprint

_Change = Annotated[int, Field(strict=True, ge=-MAX_AMOUNT, le=MAX_AMOUNT)]
_CHANGE_SCHEMA = {"type": "integer", "minimum": -MAX_AMOUNT, "maximum": MAX_AMOUNT}
_DeltaInput = Annotated[
    dict[str, Any], WithJsonSchema({"type": "object", "properties": dict.fromkeys(REGISTRY, _CHANGE_SCHEMA)})
]


class FootprintFact(Event):
    """A footprint inside an event: as in a request, but unknown fields are ignored."""

    cpu: Millicores = 0
    memory: Bytes = 0
    disk: Bytes = 0
    vapps: Count = 0

    def footprint(self) -> Footprint:
        """Return the same amounts as a request carries them."""
        return Footprint.model_construct(cpu=self.cpu, memory=self.memory, disk=self.disk, vapps=self.vapps)


class UsageDelta(Event):
    """One deployment now has this footprint, at this revision.

    ``after`` is what counts (absolute; None is gone). ``delta`` is signed and for people: it is never added up,
    so a delta and a commit of one deployment cannot count twice.
    """

    model_config = ConfigDict(json_schema_extra=NO_ROLL_UP)

    tenant: Name
    environment: Name | None = None
    stack: Name | None = None
    app: Name | None = None
    deployment: Id
    revision: Revision
    after: FootprintFact | None
    delta: Mapping[str, _Change] = Field(default_factory=dict)

    @field_validator("delta", mode="before", json_schema_input_type=_DeltaInput)
    @classmethod
    def _keep_known_dimensions(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        return {name: change for name, change in value.items() if name in REGISTRY}

    @model_validator(mode="after")
    def _is_no_roll_up(self) -> "UsageDelta":
        refuse_roll_up(self.environment, self.stack)
        return self
