"""What do plans, histories, lists and requests of limits look like on a terminal? Pure, as ``render``."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from plimsoll_client.cli.figures import age, clean, short
from plimsoll_client.cli.render import origin, table
from plimsoll_contracts.dimensions import Dimension, unit_of
from plimsoll_contracts.enforcement import Mode
from plimsoll_contracts.fields import LimitValue
from plimsoll_contracts.limits_api import Applied, LimitEntry, LimitRequestView, LimitVersion, PlannedChange, SetLimit


def _set(dimension: Dimension, limit: SetLimit | None) -> str:
    """Write what is set: ``4``, ``8GiB (shadow, until 2026-12-24 00:00 UTC)``, or ``inherit``."""
    if limit is None:
        return "inherit"
    more = ["shadow"] if limit.mode is Mode.SHADOW else []
    if limit.expires_at is not None:
        more.append(f"until {limit.expires_at:%Y-%m-%d %H:%M %Z}")
    return _value(dimension, limit.value) + (f" ({', '.join(more)})" if more else "")


def _value(dimension: Dimension, value: LimitValue) -> str:
    return short(unit_of(dimension), value)


def _step(dimension: Dimension, before: SetLimit | None, after: SetLimit | None) -> str:
    return f"{_set(dimension, before)} -> {_set(dimension, after)}"


def plan(found: Applied) -> Text:
    """Show what changes, one limit a line, with what to know about it below."""
    return Text("\n").join(Text(line) for change in found.changes for line in _planned(change))


def _planned(change: PlannedChange) -> Iterator[str]:
    yield f"{clean(change.scope)}  {change.dimension}  {_step(change.dimension, change.before, change.after)}"
    for warning in change.warnings:
        yield f"  ! {clean(warning)}"


def planned_row(change: PlannedChange) -> Mapping[str, object]:
    """Write one change for CSV."""
    return {
        "scope": change.scope,
        "dimension": change.dimension,
        **_cells("before", change.before),
        **_cells("after", change.after),
        "holds": change.holds.value,
        "source": change.holds.source,
        "below_usage": change.below_usage,
    }


def _cells(when: str, limit: SetLimit | None) -> Mapping[str, object]:
    expires_at = limit.expires_at if limit is not None else None
    return {
        when: limit.value if limit is not None else None,
        f"{when}_mode": limit.mode if limit is not None else None,
        f"{when}_expires_at": expires_at.isoformat() if expires_at is not None else None,
    }


def history(found: Sequence[LimitVersion], now: datetime) -> RenderableType:
    """Show changes of limits, newest first."""
    drawn = table("AGE", "SCOPE", "DIMENSION", "VERSION", "CHANGE", "BY", "WHY", right=("VERSION",), wrapped="WHY")
    for each in found:
        drawn.add_row(
            age(each.changed_at, now),
            clean(each.scope),
            str(each.dimension),
            str(each.version),
            Text(_step(each.dimension, each.before, each.after)),
            Text(clean(each.changed_by)),
            Text(clean(each.reason)),
        )
    return drawn


def history_row(each: LimitVersion) -> Mapping[str, object]:
    """Write one change of the history for CSV."""
    return {
        "changed_at": each.changed_at.isoformat(),
        "scope": each.scope,
        "dimension": each.dimension,
        "version": each.version,
        **_cells("before", each.before),
        **_cells("after", each.after),
        "changed_by": each.changed_by,
        "reason": each.reason,
    }


def overrides(found: Sequence[LimitEntry], now: datetime) -> RenderableType:
    """Show what is set where, by whom and why."""
    drawn = table("SCOPE", "DIMENSION", "LIMIT", "FROM", "WHY", right=("LIMIT",), wrapped="WHY")
    for each in found:
        value = each.limit.value if each.limit.value is not None else "unlimited"
        drawn.add_row(
            clean(each.scope),
            str(each.dimension),
            _value(each.dimension, value),
            Text(origin(each.limit.model_copy(update={"reason": None}), now).removeprefix("override, ")),
            Text(clean(each.limit.reason or "")),
        )
    return drawn


def override_row(each: LimitEntry) -> Mapping[str, object]:
    """Write one override for CSV."""
    limit = each.limit.model_dump(mode="json", exclude={"source"})
    return {"scope": each.scope, "dimension": each.dimension, **limit}


def requests(found: Sequence[LimitRequestView], now: datetime) -> RenderableType:
    """Show requests for limits, one a line."""
    drawn = table(
        "ID", "STATE", "SCOPE", "DIMENSION", "ASKED", "BY", "AGE", "WHY", right=("ID", "ASKED"), wrapped="WHY"
    )
    for each in found:
        drawn.add_row(
            str(each.id),
            str(each.state),
            clean(each.scope),
            str(each.dimension),
            _value(each.dimension, each.value),
            Text(clean(each.asked_by)),
            age(each.asked_at, now),
            Text(clean(each.asked_reason)),
        )
    return drawn


def request(found: LimitRequestView, now: datetime) -> Text:
    """Show one request with what was decided."""
    value = _value(found.dimension, found.value)
    head = f"request {found.id}: {found.state}  {clean(found.scope)}  {found.dimension}  {value}"
    lines = [head, f"  asked by {clean(found.asked_by)} {age(found.asked_at, now)}: {clean(found.asked_reason)}"]
    if found.decided_at is not None:
        why = f"{clean(found.decided_by or '')} {age(found.decided_at, now)}: {clean(found.decided_reason or '')}"
        lines.append(f"  {found.state} by {why}")
    if found.granted is not None:
        until = f", until {found.expires_at:%Y-%m-%d %H:%M %Z}" if found.expires_at is not None else ""
        lines.append(f"  set to {_value(found.dimension, found.granted)} (version {found.version}{until})")
    return Text("\n".join(lines))
