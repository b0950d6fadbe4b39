"""Which kinds of values do messages share: names, ids, amounts and limits, each validated in one place."""

from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

from plimsoll_contracts.codes import INVALID_AMOUNT, INVALID_NAME
from plimsoll_contracts.dimensions import Dimension, Unit, unit_of
from plimsoll_contracts.quantities import MAX_AMOUNT, QuantityError, parse
from plimsoll_contracts.scopes import NAME_PATTERN, is_name

ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"


def _name(value: object) -> object:
    if isinstance(value, str) and not is_name(value):
        raise PydanticCustomError(
            INVALID_NAME.code,
            "{shown} is not a name ({grammar})",
            {"shown": repr(value[:80]), "grammar": NAME_PATTERN},
        )
    return value


def _amount(unit: Unit) -> BeforeValidator:
    def read(value: object) -> int:
        try:
            return parse(unit, value)
        except QuantityError as error:
            raise PydanticCustomError(INVALID_AMOUNT[unit].code, "{why}", {"why": str(error)[:300]}) from None

    return BeforeValidator(read, json_schema_input_type=int | str)


Name = Annotated[str, BeforeValidator(_name), Field(pattern=NAME_PATTERN, max_length=63)]
"""A tenant, environment, stack or app."""

Id = Annotated[str, StringConstraints(pattern=ID_PATTERN)]
"""A request, hold or deployment, named by its owner."""

Text = Annotated[str, StringConstraints(min_length=1, max_length=500)]
"""Words of a person: who, why."""

Instant = AwareDatetime
"""A moment with its offset from UTC."""

Millicores = Annotated[int, _amount(Unit.MILLICORES)]
Bytes = Annotated[int, _amount(Unit.BYTES)]
Count = Annotated[int, _amount(Unit.COUNT)]
Revision = Annotated[int, Field(strict=True, ge=0, le=MAX_AMOUNT)]
Version = Annotated[int, Field(strict=True, ge=1, le=MAX_AMOUNT)]

UNLIMITED: Literal["unlimited"] = "unlimited"
"""Explicitly unenforced. Zero means zero, and an absent limit inherits."""

LimitValue = int | Literal["unlimited"]


def parse_limit(dimension: Dimension, value: object) -> LimitValue:
    """Read the value of a limit: an amount in the dimension's unit, or ``unlimited``.

    Raises:
        QuantityError: it is neither.
    """
    return UNLIMITED if value == UNLIMITED else parse(unit_of(dimension), value)


class Event(BaseModel):
    """Base of what is read from topics of facts: unknown fields are ignored, so producers may move first."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Request(BaseModel):
    """Base of what asks for something: an unknown field is refused, since ignoring it would leave it unenforced."""

    model_config = ConfigDict(frozen=True, extra="forbid")
