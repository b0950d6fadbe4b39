"""When does what happen: one function per topic; the engine owns polling, transaction, offsets and failures."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from plimsoll_contracts import codes
from plimsoll_contracts.codes import Code
from plimsoll_contracts.disk import DiskMeasured
from plimsoll_contracts.entitlements import EntitlementSnapshot
from plimsoll_contracts.nodes import NodeReport
from plimsoll_contracts.topics import (
    DISK_MEASUREMENTS,
    ENTITLEMENT_EVENTS,
    NODE_REPORTS,
    QUOTA_REQUESTS,
    USAGE_DELTAS,
    Topic,
)
from plimsoll_contracts.versions import Standing
from plimsoll_quota_enforcer import answers, metrics
from plimsoll_quota_enforcer.domain.decide import decide, measure, settle_facts
from plimsoll_quota_enforcer.domain.entitle import entitle
from plimsoll_quota_enforcer.domain.model import Fact
from plimsoll_quota_enforcer.domain.state import Decision, Settlement
from plimsoll_quota_enforcer.requests import Asked, Decoder, Refused, entitlement_of, measurement_of, report_of
from plimsoll_quota_enforcer.storage.unit import Unit
from plimsoll_streams.dispatch import Decode, Transaction, decode_by_type
from plimsoll_streams.engine import Engine
from plimsoll_streams.failures import Invalid
from plimsoll_streams.records import Headers, Received, Record

M = TypeVar("M")

_NODE_REPORT = decode_by_type(NODE_REPORTS)


def register(engine: Engine[Unit], decoder: Decoder) -> None:
    """Subscribe to everything the enforcer consumes; requests are decided before facts."""
    _register_requests(engine, decoder)
    _register_deltas(engine, decoder)
    _register_entitlements(engine)
    _register_measurements(engine)
    _register_nodes(engine)


def _register_requests(engine: Engine[Unit], decoder: Decoder) -> None:
    @engine.subscriber(QUOTA_REQUESTS, decode=decoder.request, guard=attrgetter("tenant"), first=True)
    async def on_requests(unit: Unit, batch: Sequence[Received[Asked | Refused]], tx: Transaction) -> None:
        """Decide a batch of requests, and answer each caller after the commit."""
        by_tenant = _group(_answerable(engine, batch, tx), lambda asked: asked.ask.tenant)
        wrapping = answers.wrapping("quota.decision.v1", unit.now)
        decisions: list[Decision] = []
        for tenant, of_tenant in by_tenant.items():
            outcome = decide(unit.state(tenant), [asked.ask for asked in of_tenant], unit.now, unit.policy, unit.nodes)
            unit.absorb(outcome)
            decisions.extend(outcome.decisions)
            for asked, decision in zip(of_tenant, outcome.decisions, strict=True):
                _tell(unit, tx, asked, decision, wrapping)
        unit.count_fail_opens(decisions)
        tx.after_commit(lambda: metrics.count_decisions(decisions))


def _register_deltas(engine: Engine[Unit], decoder: Decoder) -> None:
    told = _keyed(USAGE_DELTAS)

    @engine.subscriber(USAGE_DELTAS, decode=lambda record: decoder.fact(told(record)), guard=attrgetter("tenant"))
    async def on_deltas(unit: Unit, batch: Sequence[Received[Fact]], tx: Transaction) -> None:
        """Settle what the deployments' owners tell; what cannot be settled is set aside."""
        settlements: list[Settlement] = []
        for tenant, of_tenant in _group(batch, lambda received: received.message.tenant).items():
            facts = [received.message for received in of_tenant]
            outcome = settle_facts(unit.state(tenant), facts, unit.now, unit.policy, unit.nodes)
            unit.absorb(outcome)
            settlements.extend(outcome.settlements)
            for received, settlement in zip(of_tenant, outcome.settlements, strict=True):
                if settlement.code is not None:
                    tx.dead_letter(received.record, settlement.code, _kept_out(received.message, settlement.code))
        tx.after_commit(lambda: _count_settles(settlements))


def _register_entitlements(engine: Engine[Unit]) -> None:
    @engine.subscriber(ENTITLEMENT_EVENTS, decode=_keyed(ENTITLEMENT_EVENTS), guard=attrgetter("tenant"))
    async def on_entitlements(unit: Unit, batch: Sequence[Received[EntitlementSnapshot]], tx: Transaction) -> None:
        """Project what billing says, the highest version of each tenant."""
        projected: list[Standing] = []
        for tenant, of_tenant in _group(batch, lambda received: received.message.tenant).items():
            texts = [received.message.model_dump_json() for received in of_tenant]
            snapshots = [entitlement_of(each.message, text) for each, text in zip(of_tenant, texts, strict=True)]
            entitled = entitle(unit.state(tenant), snapshots, unit.now, unit.policy, unit.nodes)
            unit.absorb(entitled.outcome)
            if entitled.winner is not None:
                unit.keep_snapshot(tenant, texts[entitled.winner])
            projected.extend(entitled.projected)
            for received, became in zip(of_tenant, entitled.projected, strict=True):
                if became is Standing.CONFLICT:
                    detail = f"{tenant} has version {received.message.entitlement_version} with another body"
                    tx.dead_letter(received.record, codes.ENTITLEMENT_CONFLICT, detail)
        tx.after_commit(lambda: metrics.count(metrics.projections, projected))


def _register_measurements(engine: Engine[Unit]) -> None:
    @engine.subscriber(DISK_MEASUREMENTS, decode=_keyed(DISK_MEASUREMENTS), guard=attrgetter("tenant"))
    async def on_measurements(unit: Unit, batch: Sequence[Received[DiskMeasured]], tx: Transaction) -> None:
        """Take in what disks were found to have: the latest scan of each scope."""
        became: list[str] = []
        for tenant, of_tenant in _group(batch, lambda received: received.message.tenant).items():
            read = [measurement_of(received.message) for received in of_tenant]
            found = [each for each in read if each is not None]
            became.extend(["unknown"] * (len(read) - len(found)))
            outcome, standings = measure(unit.state(tenant), found, unit.now, unit.policy, unit.nodes)
            unit.absorb(outcome)
            became.extend(standings)
        tx.after_commit(lambda: metrics.count(metrics.measurements, became))


def _register_nodes(engine: Engine[Unit]) -> None:
    @engine.subscriber(NODE_REPORTS, decode=_node_report, guard=lambda _: "")
    async def on_reports(unit: Unit, batch: Sequence[Received[NodeReport]], tx: Transaction) -> None:
        """Take in what nodes can take: the highest version of each. Who waits for room is tried by the sweep."""
        became: list[str] = []
        for received in batch:
            report, known = received.message, unit.nodes[received.message.node]
            newer = report.version > known.version
            if newer:
                unit.set_node(report.node, report_of(report, known))
            became.append(Standing.APPLIED if newer else Standing.STALE)
        tx.after_commit(lambda: metrics.count(metrics.node_reports, became))


def _node_report(record: Record) -> NodeReport:
    """Read a report, and insist that the key is the node: the order of its versions rests on it."""
    report: NodeReport = _NODE_REPORT(record)
    if record.key != report.node.encode():
        raise Invalid(codes.KEY_MISMATCH, f"the key is not the body's node {report.node}")
    return report


def _keyed(topic: Topic) -> Decode:
    """Read by ``ce_type``, and insist that the key is the tenant: order and ownership rest on it."""
    by_type = decode_by_type(topic)

    def decode(record: Record) -> Any:
        message = by_type(record)
        if record.key != message.tenant.encode():
            raise Invalid(codes.KEY_MISMATCH, f"the key is not the body's tenant {message.tenant}")
        return message

    return decode


def _answerable(engine: Engine[Unit], batch: Iterable[Received[Asked | Refused]], tx: Transaction) -> Iterable[Asked]:
    """Set aside what nobody can be told about, tell who asked wrongly, and pass on the rest."""
    invalid: list[Code] = []
    for received in batch:
        message, address = received.message, received.message.address
        unusable = engine.check_reply_to(address.topic, address.partition)
        if unusable is not None:
            tx.dead_letter(received.record, unusable, f"reply_to {address.topic!r} {address.partition}")
        elif isinstance(message, Refused):
            invalid.append(message.code)
            told = answers.refusal(message.code, message.detail)
            tx.reply(answers.addressed(address, received.record.key, told.model_dump_json()))
        else:
            yield message
    if invalid:
        tx.after_commit(lambda: _count_invalid(invalid))


def _tell(unit: Unit, tx: Transaction, asked: Asked, decision: Decision, wrapping: Headers) -> None:
    """Answer the caller, and where the decision is new, store it and publish it."""
    if decision.waits:
        return  # whoever waits is answered when it is its turn
    body = answers.told(decision, unit.now)
    tx.reply(answers.addressed(asked.address, decision.ask.tenant.encode(), body))
    if decision.stored:
        unit.keep(decision, asked.body, body)
        tx.emit(answers.decision_message(decision, body, wrapping, asked.trace))


def _group(items: Iterable[M], key: Callable[[M], str]) -> Mapping[str, list[M]]:
    """Group in order of first appearance; inside a group the order of arrival stays."""
    groups: dict[str, list[M]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def _kept_out(fact: Fact, code: Code) -> str:
    return f"deployment {fact.deployment} at revision {fact.revision}: {code.title}"


def _count_invalid(invalid: Iterable[Code]) -> None:
    for code in invalid:
        metrics.decisions.inc(verb="none", verdict="invalid")
        metrics.refusals.inc(code=code.code)


def _count_settles(settlements: Iterable[Settlement]) -> None:
    metrics.count(metrics.settles, map(_outcome, settlements))


def _outcome(settlement: Settlement) -> str:
    if settlement.outcome is not None:
        return settlement.outcome
    return "overflow" if settlement.code is codes.AMOUNT_OVERFLOW else "conflict"
