"""What does the service's answer look like on a terminal? Pure: models and the time in, renderables out."""

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from plimsoll_client.cli.figures import age, amount, bar, clean, named, percent
from plimsoll_client.cli.screen import Fitted
from plimsoll_contracts.api import DeadLetterView, DimensionStatus, LimitChange, LimitsChanged, LimitView, ScopeStatus
from plimsoll_contracts.dimensions import Dimension, Unit, unit_of
from plimsoll_contracts.doctor import Finding, Verdict
from plimsoll_contracts.enforcement import CapacityShortfall, EnforcementReply, Mode, Violation

_NEAR = 90
_BAR, _SHORT_BAR = 16, 8
_WIDTH_FOR_BAR, _WIDTH_FOR_SHORT_BAR = 112, 96
"""Columns from which on every figure of a status has room beside a bar: a figure is never cut, a bar is left out."""


def table(*columns: str, right: Sequence[str] = (), wrapped: str = "DETAIL") -> Table:
    """Make an empty table of our one style; where the terminal is narrow, the column ``wrapped`` gives way first."""
    made = Fitted(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        made.add_column(name, justify="right" if name in right else "left", no_wrap=name != wrapped, overflow="fold")
    return made


def origin(view: LimitView, now: datetime) -> str:
    """Say where a limit comes from: ``override, alice, 2h ago, until 2026-12-24 18:00 UTC``; in shadow also why."""
    if view.source == "none":
        return "no limit set"
    parts = [clean(view.source)]
    if view.set_by:
        parts.append(clean(view.set_by))
    if view.set_at:
        parts.append(age(view.set_at, now))
    if view.expires_at:
        parts.append(f"until {view.expires_at:%Y-%m-%d %H:%M %Z}")
    if view.mode is Mode.SHADOW:
        parts.append(f"shadow: {clean(view.reason)}" if view.reason else "shadow")
    return ", ".join(parts)


def status(found: ScopeStatus, now: datetime, *, fine: bool = True, width: int = _WIDTH_FOR_BAR) -> RenderableType:
    """Show limits and usage of one scope, each figure with its unit and age, in ``width`` columns."""
    bars = _BAR if width >= _WIDTH_FOR_BAR else _SHORT_BAR if width >= _WIDTH_FOR_SHORT_BAR else 0
    drawn = table(
        "DIMENSION", "USED", "HELD", "LIMIT", *([""] if bars else []), "%", "HEADROOM", "CHANGED", "LIMIT FROM",
        right=("USED", "HELD", "LIMIT", "%", "HEADROOM"), wrapped="LIMIT FROM",
    )  # fmt: skip
    for line in found.dimensions:
        drawn.add_row(*_status_row(line, now, fine=fine, bars=bars))
    return Group(_status_head(found, now), drawn, *_gates(found))


def _status_head(found: ScopeStatus, now: datetime) -> Text:
    parts = []
    if found.plan is not None:
        parts.append(
            f"plan {clean(found.plan)} (version {found.entitlement_version}, {age(found.entitlement_at, now)})"
        )
    parts.append(_counted(found.deployments, "deployment"))
    parts.append(_counted(found.open_holds, "open hold"))
    parts.append(f"read {age(found.as_of, now)}")
    return Text.assemble((clean(found.scope), "bold"), "   ", "   ".join(parts))


def _status_row(line: DimensionStatus, now: datetime, *, fine: bool, bars: int) -> list[str | Text]:
    unit, total = line.unit, line.used + line.held
    over = line.headroom is not None and line.headroom < 0
    near = line.ceiling is not None and total * 100 >= line.ceiling * _NEAR and total > 0
    style = "red" if over else "yellow" if near else "green"
    headroom = f"over by {amount(unit, -(line.headroom or 0))}" if over else amount(unit, line.headroom)
    limit = line.limit.value if line.ceiling is None else line.ceiling
    return [
        named(line.dimension, line.basis),
        amount(unit, line.used),
        amount(unit, line.held),
        amount(unit, limit),
        *([Text(bar(line.used, line.held, line.ceiling, width=bars, fine=fine), style=style)] if bars else []),
        percent(total, line.ceiling),
        Text(headroom, style="red" if over else ""),
        age(line.as_of, now),
        origin(line.limit, now),
    ]


def _gates(found: ScopeStatus) -> list[Text]:
    """Write a line for all gates that stand alike, since mostly they all do."""
    alike: dict[tuple[str, str], list[str]] = {}
    for gate in found.gates:
        alike.setdefault((gate.state, gate.detail), []).append(gate.gate)
    lines = []
    for (state, said), gates in alike.items():
        names = f"gate{'' if len(gates) == 1 else 's'} {', '.join(gates)}"
        detail = f": {clean(said)}" if said else ""
        if state == "fail_open":
            lines.append(Text(f"! {names} FAILING OPEN{detail}", style="bold red"))
        else:
            lines.append(Text(f"{names}: {clean(state)}{detail}", style="red" if state == "deny" else ""))
    return lines


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def verdict(reply: EnforcementReply, scope: str, now: datetime, *, is_file: bool = False) -> Text:
    """Show the answer to a check: a yes in one line, a no with everything that is missing explained.

    What was asked is told again where a file was sent, since nobody has typed it.
    """
    asked = _counted_of(reply)
    if reply.allowed and not reply.would_deny:
        return Text.assemble(("ALLOWED", "bold green"), f"  {clean(scope)}  {asked}".rstrip())
    word, style = ("WOULD DENY", "bold yellow") if reply.allowed else ("DENIED", "bold red")
    missing = [
        *(violation(each, word, style, now) for each in reply.violations),
        *(shortfall(each, word, style) for each in reply.capacity),
    ]
    if not missing:
        return Text.assemble((word, style), f" {clean(reply.code)}  {clean(scope)}\n  {clean(reply.message)}")
    return Text("\n").join([*missing, *([Text(f"  read from the file: {asked}")] if is_file else [])])


def _counted_of(reply: EnforcementReply) -> str:
    """Write what was asked: one figure where reservation and limit are the same, else both."""
    counted = reply.counted
    if counted is None:
        return ""
    pairs = (
        (Dimension.CPU, counted.cpu_reserved, counted.cpu_limit),
        (Dimension.MEMORY, counted.memory_reserved, counted.memory_limit),
        (Dimension.DISK, counted.disk, counted.disk),
        (Dimension.VAPPS, counted.vapps, counted.vapps),
    )
    told = []
    for dimension, reserved, burst in pairs:
        unit = unit_of(dimension)
        if reserved or burst:
            more = f" (burst {amount(unit, burst)})" if burst != reserved else ""
            told.append(f"{dimension} {amount(unit, reserved)}{more}")
    return "  ".join(told)


def shortfall(found: CapacityShortfall, word: str, style: str) -> Text:
    """Show where room is missing on nodes."""
    unit = unit_of(found.dimension)
    where = f"node {clean(found.node)}" if found.node else f"pool {clean(found.pool)}"
    figures = (("allocated", found.allocated), ("asked", found.asked), ("largest free", found.largest_free))
    told = "  ".join(f"{name} {amount(unit, value)}" for name, value in figures)
    head = f" {clean(found.code)}  {where} {found.dimension}"
    return Text.assemble((word, style), f"{head}\n  capacity {amount(unit, found.capacity)}  {told}")


def violation(found: Violation, word: str, style: str, now: datetime) -> Text:
    """Show one limit that stood in the way, with every figure."""
    unit = unit_of(found.dimension)
    source = [clean(found.limit_source)]
    if found.limit_set_by:
        source.append(clean(found.limit_set_by))
    if found.limit_set_at:
        source.append(age(found.limit_set_at, now))
    figures = (("used", found.used), ("held", found.held), ("asked", found.asked), ("would fit", found.would_fit))
    told = "  ".join(f"{name} {amount(unit, value)}" for name, value in figures)
    head = f" {clean(found.code)}  {clean(found.scope)} {named(found.dimension, found.basis)}"
    limit = f"limit {amount(unit, found.limit)} ({', '.join(source)})"
    return Text.assemble(("SHADOW" if found.shadow else word, style), f"{head}\n  {limit}  {told}")


def changed(done: LimitsChanged, now: datetime) -> Text:
    """Show what became of each limit, and what holds from now on."""
    return Text("\n").join(_change(done.scope, change, now) for change in done.changes)


def _change(scope: str, change: LimitChange, now: datetime) -> Text:
    unit = unit_of(change.dimension)
    before, after = (f"{amount(unit, v.value)} ({origin(v, now)})" for v in (change.before, change.after))
    arrow = "falls back to" if change.before.source == "override" != change.after.source else "->"
    lines = [f"{clean(scope)}  {change.dimension}  {before} {arrow} {after}"]
    lines += [f"  ! {clean(warning)}" for warning in change.warnings]
    return Text("\n".join(lines))


def limits(found: Mapping[Dimension, LimitView], now: datetime) -> RenderableType:
    """Show the global defaults."""
    drawn = table("DIMENSION", "LIMIT", "FROM", "DETAIL", right=("LIMIT",))
    for dimension, view in found.items():
        unit: Unit = unit_of(dimension)
        drawn.add_row(str(dimension), amount(unit, view.value), origin(view, now), Text(clean(view.reason or "")))
    return drawn


def dead_letters(found: Sequence[DeadLetterView], now: datetime) -> RenderableType:
    """Show records that were set aside, one a line."""
    drawn = table("ID", "TOPIC", "PLACE", "KEY", "CODE", "AGE", "REPLAYED", "DETAIL", right=("ID",))
    for each in found:
        drawn.add_row(
            str(each.id),
            clean(each.topic),
            f"{each.partition}/{each.offset}",
            Text(clean(each.key if each.key is not None else "-")),
            clean(each.code),
            age(each.at, now),
            age(each.replayed_at, now),
            Text(clean(each.detail)),
        )
    return drawn


def dead_letter(found: DeadLetterView, now: datetime) -> RenderableType:
    """Show everything known about one record, its value as text where it is text."""
    drawn = Fitted("", "", box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    drawn.columns[0].no_wrap, drawn.columns[1].overflow = True, "fold"
    for name, value in found.model_dump(mode="json", exclude={"value_base64"}).items():
        ago = f" ({age(getattr(found, name), now)})" if name in ("at", "replayed_at") and value else ""
        drawn.add_row(Text(name, style="bold"), Text(clean("-" if value is None else value) + ago))
    if found.value_base64 is not None:
        value = base64.b64decode(found.value_base64).decode(errors="backslashreplace")
        drawn.add_row(Text("value", style="bold"), Text(clean(value)))
    return drawn


_VERDICT_STYLES = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "bold red", Verdict.UNKNOWN: "magenta"}


def lines(texts: Sequence[str]) -> Text:
    """Show plain lines."""
    return Text("\n".join(clean(text) for text in texts))


def findings(found: Sequence[Finding]) -> RenderableType:
    """Show what the doctor found, and under what is not well what to do next."""
    drawn = table("CHECK", "VERDICT", "FOUND", wrapped="FOUND")
    for each in found:
        told = clean(each.told) + (f"\nnext: {clean(each.next)}" if each.next else "")
        drawn.add_row(clean(each.check), Text(each.verdict, style=_VERDICT_STYLES[each.verdict]), Text(told))
    return drawn
