"""What does ``plimsoll doctor`` look at, in which order, and how is a finding written down?"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from plimsoll_contracts.fields import Event, Instant


class Verdict(StrEnum):
    """What a check came to."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"
    """It could not be looked at: what it needs has failed, or time ran out."""


class Finding(Event):
    """What one check found."""

    check: str
    verdict: Verdict
    told: str
    """One sentence, with figures."""
    next: str = ""
    """The command to type or the page to read next; empty where nothing is to be done."""


class Diagnosis(Event):
    """What the service found about itself, its database and its broker."""

    service: str
    version: str
    instance: str
    """The replica that looked; what lies in its own process is told of it alone."""
    findings: tuple[Finding, ...]
    as_of: Instant


@dataclass(frozen=True, slots=True)
class Check:
    """One check: what it asks, and what to do where the answer is no."""

    name: str
    asks: str
    next: str
    needs: tuple[str, ...] = ()
    """Checks without which this one cannot be looked at."""
    is_local: bool = False
    """Looked at where the command runs, not by the service."""


def _runbook(alert: str) -> str:
    return f"deploy/monitoring/runbooks/{alert}.md"


_DB = ("database",)
_KEPT = ("migrations",)
_BROKER = ("broker",)
_MAKE_DAYS = 'psql "$PLIMSOLL_POSTGRES_DSN" -c "SELECT quota.maintain_partitions(14, 35)"'

CHECKS = (
    Check("address", "Is the service's address known here?", "make up", is_local=True),
    Check("parts", "Do broker and database accept connections from here?", "make status", is_local=True),
    Check("token", "Is there a token, and for how long?", "plimsoll token --help", ("address",), is_local=True),
    Check("service", "Does the service answer, and in which version?", "make logs", ("address",), is_local=True),
    Check("database", "Does the database answer, and how soon?", _runbook("StreamOutage")),
    Check(
        "migrations", "Is the schema the one of this version?", "python -m plimsoll_quota_enforcer migrate", _DB
    ),
    Check("days", "Are there partitions for today and the days to come?", _MAKE_DAYS, _KEPT),
    Check("durability", "Does the database keep what it has acknowledged?", "docs/operating.md#durability", _DB),
    Check("clock", "Do service and database agree on the time?", "timedatectl status", _DB),
    Check("broker", "Does Kafka answer, and how soon?", _runbook("StreamOutage")),
    Check(
        "topics", "Are the topics as declared: partitions, retention?",
        "python -m plimsoll_streams topics --check", _BROKER,
    ),
    Check("instances", "Has each replica an ordinal of its own?", "docs/operating.md#instances", _DB),
    Check("ownership", "Does every partition belong to a replica that lives?", "plimsoll context http", _KEPT),
    Check("stopped", "Is every partition of this replica read on?", _runbook("StreamPartitionStopped")),
    Check("progress", "Does this replica get on?", _runbook("StreamNoProgress")),
    Check("lag", "How much is unread, and since when?", _runbook("StreamLagHigh"), ("migrations", "broker")),
    Check("outbox", "Does what was decided get published?", _runbook("StreamOutboxStuck"), _KEPT),
    Check("dead-letters", "Was anything set aside?", "plimsoll dlq list", _KEPT),
    Check("holds", "Are holds closed when their time has passed?", "make logs", _KEPT),
    Check("limits", "Do limits end when their time has passed?", "make logs", _KEPT),
    Check("waiters", "Are waiting requests answered when their time has passed?", "make logs", _KEPT),
    Check("usage", "Is usage what charges, holds and measurements add up to?", "docs/operating.md#usage", _KEPT),
    Check("nodes", "Is on each node allocated what charges and holds have there?", "docs/operating.md#usage", _KEPT),
    Check("gates", "Did a gate fail open within the last hour?", _runbook("QuotaGateFailOpenAny"), _KEPT),
    Check("entitlements", "Has every tenant an entitlement?", _runbook("QuotaGateFailOpenAny"), _KEPT),
    Check("over-limits", "Is any scope over a limit?", "plimsoll quota list", _KEPT),
)  # fmt: skip
"""Every check, causes before symptoms."""

BY_NAME = {check.name: check for check in CHECKS}


def found(name: str, verdict: Verdict, told: str, following: str = "") -> Finding:
    """Write down a finding; what comes next is the check's own remedy where nothing more exact is known."""
    return Finding(
        check=name,
        verdict=verdict,
        told=told,
        next="" if verdict is Verdict.OK else following or BY_NAME[name].next,
    )


def not_looked_at(name: str, before: Iterable[Finding]) -> Finding | None:
    """Return the finding of a check that something before it makes pointless, None where it can be looked at."""
    bad = {each.check: each.verdict for each in before if each.verdict in (Verdict.FAIL, Verdict.UNKNOWN)}
    causes = _causes(name, bad)
    if not causes:
        return None
    return Finding(check=name, verdict=Verdict.UNKNOWN, told=f"not looked at: {' and '.join(causes)} comes first")


def _causes(name: str, bad: Mapping[str, Verdict]) -> list[str]:
    """Name what a check lacks in the end: not what could itself not be looked at, but what that lacks."""
    lacking: dict[str, None] = {}
    for need in BY_NAME[name].needs:
        if need in bad:
            lacking.update(dict.fromkeys(_causes(need, bad) or [need]))
    return list(lacking)


def reference() -> str:
    """Render the checks as the Markdown of ``docs/reference/doctor.md``."""
    rows = [
        f"| {each.name} | {each.asks} | {'here' if each.is_local else 'the service'} | {_page(each.next)} |"
        for each in CHECKS
    ]
    head = [
        "# What the doctor checks",
        "",
        "Generated from `plimsoll_contracts.doctor`. In this order: causes come before symptoms.",
        "",
        "| check | question | who looks | next, where the answer is no |",
        "| --- | --- | --- | --- |",
    ]
    return "\n".join([*head, *rows]) + "\n"


def _page(following: str) -> str:
    if ".md" not in following:
        return f"`{following}`"
    name = following.rpartition("/")[2].replace(".md", "").replace("#", ", ")
    return f"[{name}](../../{following})"
