"""What do the past and its reasons look like on a terminal? Pure: models and the time in, renderables out."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from plimsoll_client.cli.figures import age, amount, clean, moment, named
from plimsoll_client.cli.render import table, violation
from plimsoll_contracts.codes import CODES
from plimsoll_contracts.decisions_api import (
    DecisionDetail,
    DecisionLine,
    Exceeded,
    Fared,
    GatesOverview,
    Simulated,
    TenantGates,
    UsageAt,
)
from plimsoll_contracts.dimensions import Dimension, unit_of


def usage(found: UsageAt, now: datetime) -> RenderableType:
    """Show what one scope used and held at an instant."""
    drawn = table("DIMENSION", "USED", "HELD", right=("USED", "HELD"))
    for line in found.dimensions:
        drawn.add_row(named(line.dimension, line.basis), amount(line.unit, line.used), amount(line.unit, line.held))
    counted = f"deployments {found.deployments}   open holds {found.open_holds}"
    head = f"   at {moment(found.at)} ({age(found.at, now)})   {counted}"
    return Group(Text.assemble((clean(found.scope), "bold"), head), drawn)


def _verdict(line: DecisionLine) -> tuple[str, str]:
    """Return the word for what was decided, and its style."""
    if line.would_deny:
        return "WOULD DENY", "bold yellow"
    return ("ALLOWED", "bold green") if line.allowed else ("DENIED", "bold red")


def decisions(found: Sequence[DecisionLine]) -> Text:
    """Show decisions, one a line, each as those who follow them see it."""
    return Text("\n").join(decision_line(line) for line in found)


def decision_line(line: DecisionLine) -> Text:
    """Show one decision in one line."""
    word, style = _verdict(line)
    parts = [f"{line.verb:<7}", line.scope, line.deployment or "-", line.request_id, line.code or "", _detail(line)]
    told = "  ".join(clean(part) for part in parts if part)
    return Text.assemble(f"{moment(line.decided_at)}  ", (f"{word:<10}", style), f"  {told}")


def _detail(line: DecisionLine) -> str:
    opened = f"gates failed open: {', '.join(line.fail_open)}" if line.fail_open else ""
    return "; ".join(part for part in (line.message, opened) if part)


def decision(found: DecisionDetail, now: datetime) -> Text:
    """Show one decision: the verdict with every figure, what was asked, and what it was decided on."""
    word, style = _verdict(found)
    about = f"  {found.verb} {clean(found.request_id)}"
    about += f"  deployment {clean(found.deployment)}" if found.deployment else ""
    lines = [
        Text.assemble((word, style), f" {clean(found.code)}" if found.code else "", f"  {clean(found.scope)}{about}"),
        Text(f"  decided {moment(found.decided_at)} ({age(found.decided_at, now)})"),
    ]
    if found.code is not None and found.code in CODES and not found.reply.violations:
        lines.append(Text(f"  {CODES[found.code].title}"))
    if found.message:
        lines.append(Text(f"  {clean(found.message)}"))
    lines += [violation(each, word, style, now) for each in found.reply.violations]
    lines.append(Text(f"asked       {_asked(found)}"))
    lines += [Text(f"{name:<12}{told}") for name, told in _grounds(found, now)]
    return Text("\n").join(lines)


def _asked(found: DecisionDetail) -> str:
    """Say what the request wanted, in amounts that people read."""
    request = dict(found.request)
    footprint = request.get("footprint")
    parts = [
        f"{name} {amount(unit_of(Dimension(name)), value)}"
        for name, value in (footprint.items() if isinstance(footprint, dict) else ())
        if name in list(Dimension)
    ]
    if "compose" in request:
        parts.append("a compose file")
    if "footprint" in request and footprint is None:
        parts.append("that it is gone")
    told = ("app", "mode", "hold", "revision", "replaces", "surge", "supersedes", "placement", "ttl_seconds")
    parts += [f"{name} {request[name]}" for name in told if request.get(name)]
    return clean("  ".join(parts) or "nothing")


def _grounds(found: DecisionDetail, now: datetime) -> list[tuple[str, str]]:
    """Say what the decision rests on, each with what has become of it."""
    was, present = found.entitlement_version, found.present_entitlement_version
    if was is None:
        entitlement = "none was known" + (f"; now version {present}" if present is not None else "")
    else:
        entitlement = f"version {was}" + (", which still holds" if was == present else f"; now version {present}")
    still = found.defaults_version == found.present_defaults_version
    defaults = f"version {found.defaults_version}" + (
        ", which still holds" if still else f"; now version {found.present_defaults_version}"
    )
    told = [
        ("rests on", f"charges, holds and limits of {clean(found.tenant)} as of step {found.seq} of its history"),
        ("plan", entitlement),
        ("defaults", defaults),
    ]
    if found.fail_open:
        told.append(("not judged", f"gates that failed open: {', '.join(found.fail_open)}"))
    if found.reply.denied_gates:
        told.append(("refused by", f"gates {', '.join(found.reply.denied_gates)}"))
    if found.reply.settled is not None:
        settled = found.reply.settled
        told.append(("settled", f"{clean(settled.deployment)} at revision {settled.revision}: {settled.outcome}"))
    if found.hold_now is not None:
        hold = found.hold_now
        expiry = f", expires {age(hold.expires_at, now)}" if hold.state == "open" else ""
        told.append(("hold", f"{clean(hold.id)} is {hold.state}{expiry}"))
    told += [("note", clean(note)) for note in found.reply.notes]
    if found.code is not None and found.code in CODES:
        told.append(("what to do", CODES[found.code].remedy))
    return told


def gates(found: GatesOverview, now: datetime) -> RenderableType:
    """Show how often each gate failed open, and who is not judged by any."""
    drawn = table("GATE", "FAILED OPEN", "LAST", right=("FAILED OPEN",))
    for gate in found.gates:
        drawn.add_row(gate.gate, str(gate.failed_open), age(gate.last_at, now))
    if not found.without_entitlement:
        return drawn
    who = table("NO ENTITLEMENT", "DEPLOYMENTS", "LAST DECISION", right=("DEPLOYMENTS",))
    for each in found.without_entitlement:
        who.add_row(clean(each.tenant), str(each.deployments), age(each.last_decision_at, now))
    return Group(drawn, Text(""), who)


def tenant_gates(found: TenantGates, now: datetime) -> RenderableType:
    """Show how each gate stands for one tenant."""
    drawn = table("GATE", "STATE", "DETAIL")
    for gate in found.gates:
        style = {"fail_open": "bold red", "deny": "red"}.get(gate.state, "")
        drawn.add_row(gate.gate, Text(clean(gate.state), style=style), Text(clean(gate.detail)))
    known = f"plan {clean(found.plan)} (version {found.entitlement_version}, {age(found.entitlement_at, now)})"
    plan = known if found.plan is not None else "no entitlement is known"
    last = f"last let through unjudged: {age(found.last_fail_open_at, now)}"
    return Group(Text.assemble((clean(found.tenant), "bold"), f"   {plan}   {last}"), drawn)


def simulated(found: Simulated) -> Text:
    """Show what other limits would have done, whom they would have refused, and what would be over them now."""
    head = (
        f"{found.replayed} decisions of {found.tenants} tenants since {moment(found.since)}: "
        f"{found.refused_then} were refused, {found.refused_proposed} would have been"
    )
    lines = [Text(head), Text(f"newly refused {found.newly_refused}   newly allowed {found.newly_allowed}")]
    lines += [_fared(each, "REFUSED", "bold red") for each in found.refusals]
    lines += [_fared(each, "ALLOWED", "bold green") for each in found.admissions]
    if listed := found.newly_refused + found.newly_allowed - len(found.refusals) - len(found.admissions):
        lines.append(Text(f"  and {listed} more"))
    lines += [Text.assemble(("OVER NOW", "bold red"), f"  {_exceeded(each)}") for each in found.over_now]
    if found.left_out:
        lines.append(Text(f"left out {found.left_out} commits, releases and facts of what would have been refused"))
    if found.not_replayed:
        lines.append(Text(f"refused for gates, nodes or a queue, and so here: {found.not_replayed}"))
    for why, count in found.differs.items():
        lines.append(Text(f"not told of: {count} decisions do not come out as recorded: {clean(why)}", style="yellow"))
    if found.replayed_until is not None:
        lines.append(Text(f"cut at {moment(found.replayed_until)}", style="yellow"))
    return Text("\n").join(lines)


def _fared(each: Fared, word: str, style: str) -> Text:
    over = "; ".join(map(_exceeded, each.over))
    parts = [each.request_id, each.scope, each.deployment, each.code or ""]
    told = "  ".join(clean(part) for part in parts if part)
    return Text.assemble(f"  {moment(each.decided_at)}  ", (word, style), f"  {told}" + (f"  {over}" if over else ""))


def _exceeded(each: Exceeded) -> str:
    unit = unit_of(each.dimension)
    figures = (("limit", each.limit), ("used", each.used), ("held", each.held), ("asked", each.asked))
    told = "  ".join(f"{name} {amount(unit, value)}" for name, value in figures if value or name == "limit")
    return f"{clean(each.scope)} {named(each.dimension, each.basis)} over by {amount(unit, each.over_by)}: {told}"
