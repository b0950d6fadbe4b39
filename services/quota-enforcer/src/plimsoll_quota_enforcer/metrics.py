"""Which figures does the enforcer export: counted after the commit, so that no retry counts twice."""

from collections import Counter
from collections.abc import Iterable

from plimsoll_contracts.codes import CODES
from plimsoll_contracts.enforcement import Gate, SettleOutcome, Verb
from plimsoll_contracts.versions import Standing
from plimsoll_quota_enforcer.domain.state import Decision, Edge, Passage
from plimsoll_runtime import metrics

VERDICTS = ("allowed", "denied", "would_deny", "waits", "repeated", "invalid")

decisions = metrics.counter(
    "quota_decisions_total",
    "Requests answered, by verb and verdict; would_deny was let through in shadow mode.",
    labels={"verb": (*Verb, "none"), "verdict": VERDICTS},
)
refusals = metrics.counter(
    "quota_refusals_total", "Requests answered with a code, by code.", labels={"code": tuple(CODES)}
)
gate_decisions = metrics.counter(
    "quota_gate_decisions_total",
    "What each entitlement gate said when it was asked about growth.",
    labels={"gate": tuple(Gate), "outcome": tuple(Passage)},
)
gate_fail_open = metrics.counter(
    "quota_gate_fail_open_total",
    "Decisions that a gate let through because the tenant has no entitlement row; kept over restarts.",
    labels={"gate": tuple(Gate)},
)
settles = metrics.counter(
    "quota_settles_total",
    "Usage deltas by what they did; a conflict or an overflow was kept out.",
    labels={"outcome": (*SettleOutcome, "conflict", "overflow")},
)
projections = metrics.counter(
    "quota_entitlement_snapshots_total",
    "Entitlement snapshots by what became of them; a conflict was kept out.",
    labels={"outcome": tuple(Standing)},
)
measurements = metrics.counter(
    "quota_disk_measurements_total",
    "Measurements of disks by what became of them; stale is an older scan, or an incomplete one that would lower.",
    labels={"outcome": (*Standing, "unknown")},
)
node_reports = metrics.counter(
    "quota_node_reports_total",
    "Reports of nodes by what became of them.",
    labels={"outcome": (Standing.APPLIED, Standing.STALE)},
)
waits = metrics.counter(
    "quota_waits_total",
    "Requests that waited for room, by how that ended.",
    labels={"outcome": ("allowed", "denied")},
)
crossings = metrics.counter(
    "quota_over_limit_edges_total", "Limits crossed, and come back under.", labels={"edge": tuple(Edge)}
)
swept = metrics.counter("quota_swept_tenants_total", "Idle tenants whose holds or limits had passed their time.")
cached_tenants = metrics.gauge("quota_cached_tenants", "Tenants whose state is at hand without loading.")
limit_changes = metrics.counter(
    "quota_limit_changes_total", "Limits set, unset, or expired.", labels={"kind": ("set", "unset", "expired")}
)


def count_decisions(decided: Iterable[Decision]) -> None:
    """Count answers, once they are durable."""
    verdicts: Counter[tuple[str, str]] = Counter()
    refused: Counter[str] = Counter()
    passages: Counter[tuple[str, str]] = Counter()
    for decision in decided:
        verdicts[decision.ask.verb, _verdict(decision)] += 1
        if decision.code is not None:
            refused[decision.code.code] += 1
        passages.update((verdict.gate, verdict.passage) for verdict in decision.gates)
    for (verb, verdict), count in verdicts.items():
        decisions.inc(count, verb=verb, verdict=verdict)
    for code, count in refused.items():
        refusals.inc(count, code=code)
    for (gate, passage), count in passages.items():
        gate_decisions.inc(count, gate=gate, outcome=passage)
        if passage == "fail_open":
            gate_fail_open.inc(count, gate=gate)


def _verdict(decision: Decision) -> str:
    if decision.waits:
        return "waits"
    if decision.repeats is not None:
        return "repeated"
    if decision.would_deny:
        return "would_deny"
    return "allowed" if decision.allowed else "denied"


def count(counter: metrics.Counter, outcomes: Iterable[str]) -> None:
    """Count each outcome."""
    for outcome, times in Counter(outcomes).items():
        counter.inc(times, outcome=outcome)
