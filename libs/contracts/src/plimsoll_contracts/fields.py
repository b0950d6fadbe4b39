"""Which kinds of values do messages share: names, ids, amounts and limits, each validated in one place."""

import re
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from plimsoll_contracts.codes import INVALID_AMOUNT, INVALID_NAME, SCOPE_IS_ROLLUP
from plimsoll_contracts.dimensions import Dimension, Unit, unit_of
from plimsoll_contracts.quantities import AMOUNT_PATTERNS, MAX_AMOUNT, QuantityError, parse
from plimsoll_contracts.scopes import NAME_PATTERN, is_name

ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"

TEXT_PATTERN = r"^[^\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]+$"
"""One line of any script. No control characters: PostgreSQL refuses NUL, and terminals obey the others."""

INSTANT_PATTERN = (
    r"^(19[7-9][0-9]|2[0-9]{3})-[0-9]{2}-[0-9]{2}"
    r"T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$"
)
"""RFC 3339 with seconds and an offset."""

_INSTANT = re.compile(INSTANT_PATTERN)
_FIRST_YEAR, _LAST_YEAR = 1970, 2999


_NameInput = Annotated[str, Field(pattern=NAME_PATTERN)]


def _name(value: object) -> object:
    if isinstance(value, str) and not is_name(value):
        raise PydanticCustomError(
            INVALID_NAME.code,
            "{shown} is not a name ({grammar})",
            {"shown": repr(value[:80]), "grammar": NAME_PATTERN},
        )
    return value


_AmountInput = {
    unit: Annotated[int, Field(ge=0, le=MAX_AMOUNT)] | Annotated[str, Field(pattern=pattern)]
    for unit, pattern in AMOUNT_PATTERNS.items()
}


def _amount(unit: Unit) -> BeforeValidator:
    def read(value: object) -> int:
        try:
            return parse(unit, value)
        except QuantityError as error:
            raise PydanticCustomError(INVALID_AMOUNT[unit].code, "{why}", {"why": str(error)[:300]}) from None

    return BeforeValidator(read, json_schema_input_type=_AmountInput[unit])


def _instant_is_text(value: object) -> object:
    """Refuse numbers, which pydantic would take for seconds since 1970, also when they are written as texts."""
    if isinstance(value, datetime) or (isinstance(value, str) and _INSTANT.fullmatch(value)):
        return value
    raise PydanticCustomError("instant", "write an instant as in 2026-01-31T12:00:00Z")


def _in_utc(value: datetime) -> datetime:
    """Bound the year, so that adding a window or a time to live to what a caller sent can never overflow."""
    try:
        moved = value.astimezone(UTC)
    except OverflowError:
        moved = None
    if moved is None or not _FIRST_YEAR <= moved.year <= _LAST_YEAR:
        raise PydanticCustomError("instant", f"the year is not within {_FIRST_YEAR} to {_LAST_YEAR}")
    return moved


Name = Annotated[
    str, StringConstraints(pattern=NAME_PATTERN), BeforeValidator(_name, json_schema_input_type=_NameInput)
]
"""A tenant, environment, stack or app."""

Id = Annotated[str, StringConstraints(pattern=ID_PATTERN)]
"""A request, hold or deployment, named by its owner."""

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500, pattern=TEXT_PATTERN)]
"""Words of a person: who, why."""

Instant = Annotated[
    AwareDatetime,
    BeforeValidator(_instant_is_text),
    AfterValidator(_in_utc),
    WithJsonSchema({"type": "string", "format": "date-time", "pattern": INSTANT_PATTERN}),
]
"""A moment, written with its offset from UTC and read into UTC."""

Flag = Annotated[bool, Field(strict=True)]
"""Yes or no: no text and no number is taken for either."""

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


NO_ROLL_UP: dict[str, JsonValue] = {
    "if": {"properties": {"stack": {"type": "string"}}, "required": ["stack"]},
    "then": {"properties": {"environment": {"type": "string"}}, "required": ["environment"]},
}
"""Tells readers of the published schemas that a stack is named together with its environment."""


def refuse_roll_up(environment: str | None, stack: str | None) -> None:
    """Refuse a stack that is named without its environment: nothing is charged to a roll-up.

    Raises:
        PydanticCustomError: with the code of a roll-up.
    """
    if stack is not None and environment is None:
        raise PydanticCustomError(
            SCOPE_IS_ROLLUP.code, "a stack is named without its environment: name both, or neither"
        )


class Event(BaseModel):
    """Base of what is read from topics of facts: unknown fields are ignored, so producers may move first."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


class Request(BaseModel):
    """Base of what asks for something: an unknown field is refused, since ignoring it would leave it unenforced."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
