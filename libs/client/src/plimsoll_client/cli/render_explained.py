"""What does the explanation of a figure look like on a terminal? Pure: models and the time in, text out."""

from collections.abc import Iterator
from datetime import datetime

from rich.text import Text

from plimsoll_client.cli.figures import age, amount, clean, named
from plimsoll_client.cli.render import origin
from plimsoll_contracts.decisions_api import Explanation, FigureExplained, LimitLevel
from plimsoll_contracts.dimensions import Unit


def explanation(found: Explanation, now: datetime) -> Text:
    """Show each figure with what it is made of, then what stands beside all of them."""
    lines = [Text(clean(found.scope), style="bold")]
    for figure in found.figures:
        lines += _figure(figure, now)
    lines += [Text(line) for line in _beside(found, now)]
    return Text("\n").join(lines)


def _figure(line: FigureExplained, now: datetime) -> Iterator[Text]:
    unit = line.unit
    over = line.headroom is not None and line.headroom < 0
    told = f"used {amount(unit, line.used)}  held {amount(unit, line.held)}  limit {amount(unit, line.ceiling)}"
    room = f"over by {amount(unit, -(line.headroom or 0))}" if over else f"headroom {amount(unit, line.headroom)}"
    yield Text.assemble((named(line.dimension, line.basis), "bold"), f"  {told}  ", (room, "bold red" if over else ""))
    for level in line.levels:
        yield Text(f"  {'->' if level.holds else '  '} {clean(level.level):<9}{_level(level, unit, now)}")
    for above in line.above:
        if above.ceiling is not None:
            left = f"used {amount(unit, above.used)}  held {amount(unit, above.held)}"
            told = f"limit {amount(unit, above.ceiling)} ({origin(above.limit, now)})  {left}"
            yield Text(f"     above    {clean(above.scope)}: {told}  headroom {amount(unit, above.headroom)}")
    for charge in line.charges:
        times = charge.multiplier_milli / 1000
        scaled = f" = {amount(unit, charge.raw)} x {times:g}" if charge.counts != charge.raw else ""
        who = f"{clean(charge.deployment)} in {clean(charge.scope)} at revision {charge.revision}"
        yield Text(f"     charge   {amount(unit, charge.counts)}{scaled}  {who}, {age(charge.since, now)}")
    if (more := line.charges_in_all - len(line.charges)) > 0:
        yield Text(f"              and {more} smaller ones")
    for hold in line.holds:
        who = f"{clean(hold.deployment)} in {clean(hold.scope)}, hold {clean(hold.hold)}"
        when = f"{age(hold.since, now)}, expires {age(hold.expires_at, now)}"
        yield Text(f"     hold    +{amount(unit, hold.adds)}  {who}, {when}")
    if (more := line.holds_in_all - len(line.holds)) > 0:
        yield Text(f"              and {more} more holds")
    if line.members:
        yield Text(f"     counted  {', '.join(map(clean, line.members))}")


def _level(level: LimitLevel, unit: Unit, now: datetime) -> str:
    if level.limit.source == "none":
        return "not set"
    reason = f": {clean(level.limit.reason)}" if level.limit.reason else ""
    return f"{amount(unit, level.limit.value)} ({origin(level.limit, now)}){reason}"


def _beside(found: Explanation, now: datetime) -> Iterator[str]:
    for each in found.measurements:
        whole = "" if each.complete else ", incomplete"
        told = f"{amount(Unit.BYTES, each.bytes)} by {clean(each.method)}{whole}, {age(each.measured_at, now)}"
        yield f"measured  {clean(each.scope)}: {told}"
    gates = found.gates
    if gates.plan is not None:
        yield f"plan      {clean(gates.plan)}, version {gates.entitlement_version}, {age(gates.entitlement_at, now)}"
    for gate in gates.gates:
        yield f"gate      {gate.gate}: {clean(gate.state)}" + (f", {clean(gate.detail)}" if gate.detail else "")
    for waiter in found.waiting:
        who = f"{clean(waiter.request_id)} for {clean(waiter.deployment)} in {clean(waiter.scope)}"
        yield f"waiting   {who}, {age(waiter.since, now)}, until {age(waiter.until, now)}"
