"""What did the operator mean: scopes, amounts and times as typed, read into what the service takes. Pure."""

import difflib
from collections.abc import Iterable, Mapping
from datetime import datetime

from plimsoll_client.cli.failures import CommandFailed, Exit
from plimsoll_client.cli.figures import parse_since, parse_until
from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.fields import LimitValue, parse_limit
from plimsoll_contracts.quantities import QuantityError
from plimsoll_contracts.scopes import DEFAULTS, RollUp, Scope, ScopeError, parse_scope


def read_scope(text: str) -> Scope:
    """Read a checked scope.

    Raises:
        CommandFailed: it is none; for a roll-up the hint names the three forms that would work.
    """
    try:
        scope = parse_scope(text)
    except ScopeError as error:
        hint = "write TENANT, TENANT/env:ENVIRONMENT or TENANT/STACK/ENVIRONMENT"
        raise CommandFailed(Exit.USAGE, str(error), hint) from None
    if isinstance(scope, RollUp):
        raise CommandFailed(Exit.USAGE, f"{scope} is a stack over all environments", scope.alternatives())
    return scope


def read_scope_or_defaults(text: str) -> Scope | None:
    """Read a scope, or None for the global defaults.

    Raises:
        CommandFailed: as ``read_scope``.
    """
    return None if text == DEFAULTS else read_scope(text)


def read_dimension(text: str) -> Dimension:
    """Read the name of a dimension.

    Raises:
        CommandFailed: there is none such; the hint names the nearest.
    """
    try:
        return Dimension(text)
    except ValueError:
        near = difflib.get_close_matches(text, list(Dimension), 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise CommandFailed(
            Exit.USAGE, f"there is no dimension {text!r}", f"{hint}there are {', '.join(Dimension)}"
        ) from None


def read_limits(assignments: Iterable[str]) -> Mapping[str, LimitValue]:
    """Read ``cpu=4 memory=8g disk=unlimited`` into amounts in base units.

    Raises:
        CommandFailed: naming the first assignment that is wrong, and how to write it.
    """
    limits: dict[str, LimitValue] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise CommandFailed(Exit.USAGE, f"{assignment!r} sets nothing", "write DIMENSION=AMOUNT, such as cpu=4")
        dimension = read_dimension(name)
        if dimension in limits:
            raise CommandFailed(Exit.USAGE, f"{dimension} is given twice", "give each dimension once")
        limits[dimension] = read_amount(dimension, value, hint="`unlimited` is taken too; `quota unset` inherits")
    if not limits:
        raise CommandFailed(Exit.USAGE, "nothing to set", "write DIMENSION=AMOUNT, such as cpu=4 memory=8g")
    return limits


def read_amount(dimension: Dimension, text: str, *, hint: str = "") -> LimitValue:
    """Read one amount, or ``unlimited``.

    Raises:
        CommandFailed: it is neither.
    """
    try:
        return parse_limit(dimension, text)
    except QuantityError as error:
        raise CommandFailed(Exit.USAGE, str(error), hint) from None


def read_until(text: str | None, now: datetime) -> datetime | None:
    """Read when a limit ends.

    Raises:
        CommandFailed: it is no time, or in the past.
    """
    try:
        return None if text is None else parse_until(text, now)
    except ValueError as error:
        raise CommandFailed(Exit.USAGE, str(error)) from None


def read_since(text: str | None, now: datetime) -> datetime | None:
    """Read when something was.

    Raises:
        CommandFailed: it is no time, or in the future.
    """
    try:
        return None if text is None else parse_since(text, now)
    except ValueError as error:
        raise CommandFailed(Exit.USAGE, str(error)) from None
