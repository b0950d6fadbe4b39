"""Which figures does the enforcer export: counted after the commit, so that no retry counts twice."""

from plimsoll_contracts.codes import CODES
from plimsoll_contracts.enforcement import Gate, SettleOutcome, Verb
from plimsoll_contracts.versions import Standing
from plimsoll_quota_enforcer.domain.state import Edge, Passage
from plimsoll_runtime import metrics

VERDICTS = ("allowed", "denied", "would_deny", "repeated", "invalid")

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
crossings = metrics.counter(
    "quota_over_limit_edges_total", "Limits crossed, and come back under.", labels={"edge": tuple(Edge)}
)
swept = metrics.counter("quota_swept_tenants_total", "Idle tenants whose holds or limits had passed their time.")
cached_tenants = metrics.gauge("quota_cached_tenants", "Tenants whose state is at hand without loading.")
limit_changes = metrics.counter(
    "quota_limit_changes_total", "Limits set, unset, or expired.", labels={"kind": ("set", "unset", "expired")}
)
