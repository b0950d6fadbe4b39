"""When does what happen: one function per topic; the engine owns polling, transaction, offsets and failures."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TypeVar

from plimsoll_contracts import codes
from plimsoll_contracts.codes import Code
from plimsoll_contracts.entitlements import EntitlementSnapshot
from plimsoll_contracts.topics import ENTITLEMENT_EVENTS, QUOTA_DECISIONS, QUOTA_REQUESTS, USAGE_DELTAS, Topic
from plimsoll_contracts.usage import UsageDelta
from plimsoll_contracts.versions import Standing
from plimsoll_quota_enforcer import answers, metrics
from plimsoll_quota_enforcer.domain.decide import decide, settle_facts
from plimsoll_quota_enforcer.domain.entitle import entitle
from plimsoll_quota_enforcer.domain.model import Fact
from plimsoll_quota_enforcer.domain.state import Decision, Settlement
from plimsoll_quota_enforcer.requests import Address, Asked, Decoder, Refused, entitlement_of
from plimsoll_quota_enforcer.storage.unit import Unit
from plimsoll_streams.dispatch import Decode, Transaction, decode_by_type
from plimsoll_streams.engine import Engine
from plimsoll_streams.failures import Invalid
from plimsoll_streams.records import Headers, OutboxMessage, Received, Record, Reply

M = TypeVar("M")

_JSON: Headers = (("content-type", b"application/json"),)


def register(engine: Engine[Unit], decoder: Decoder, *, instance: str) -> None:
    """Subscribe to everything the enforcer consumes; requests are decided before facts."""
    _register_requests(engine, decoder, instance)
    _register_deltas(engine, decoder)
    _register_entitlements(engine)


def _register_requests(engine: Engine[Unit], decoder: Decoder, instance: str) -> None:
    @engine.subscriber(QUOTA_REQUESTS, decode=decoder.request, guard=attrgetter("tenant"), first=True)
    async def on_requests(unit: Unit, batch: Sequence[Received[Asked | Refused]], tx: Transaction) -> None:
        """Decide a batch of requests, and answer each caller after the commit."""
        by_tenant = _group(_answerable(engine, batch, tx), lambda asked: asked.ask.tenant)
        await unit.recall_for_asks([asked.ask for of_tenant in by_tenant.values() for asked in of_tenant])
        wrapping = answers.wrapping("quota.decision.v1", unit.now)
        decisions: list[Decision] = []
        for tenant, of_tenant in by_tenant.items():
            outcome = decide(unit.state(tenant), [asked.ask for asked in of_tenant], unit.now, unit.policy)
            unit.absorb(outcome)
            decisions.extend(outcome.decisions)
            for asked, decision in zip(of_tenant, outcome.decisions, strict=True):
                _tell(unit, tx, asked, decision, wrapping)
        fail_opens = Counter(str(gate) for decision in decisions for gate in answers.failed_open(decision))
        if fail_opens:
            unit.count_fail_opens(instance, fail_opens)
        tx.after_commit(lambda: _count_decisions(decisions))


def _register_deltas(engine: Engine[Unit], decoder: Decoder) -> None:
    @engine.subscriber(USAGE_DELTAS, decode=_keyed(USAGE_DELTAS), guard=attrgetter("tenant"))
    async def on_deltas(unit: Unit, batch: Sequence[Received[UsageDelta]], tx: Transaction) -> None:
        """Settle what the deployments' owners tell; what cannot be settled is set aside."""
        facts = [decoder.fact(received.message) for received in batch]
        await unit.recall_for_facts(facts)
        settlements: list[Settlement] = []
        by_tenant = _group(zip(facts, batch, strict=True), lambda pair: pair[0].tenant)
        for tenant, pairs in by_tenant.items():
            outcome = settle_facts(unit.state(tenant), [fact for fact, _ in pairs], unit.now, unit.policy)
            unit.absorb(outcome)
            settlements.extend(outcome.settlements)
            for (fact, received), settlement in zip(pairs, outcome.settlements, strict=True):
                if settlement.code is not None:
                    tx.dead_letter(received.record, settlement.code, _kept_out(fact, settlement.code))
        tx.after_commit(lambda: _count_settles(settlements))


def _register_entitlements(engine: Engine[Unit]) -> None:
    @engine.subscriber(ENTITLEMENT_EVENTS, decode=_keyed(ENTITLEMENT_EVENTS), guard=attrgetter("tenant"))
    async def on_entitlements(unit: Unit, batch: Sequence[Received[EntitlementSnapshot]], tx: Transaction) -> None:
        """Project what billing says, the highest version of each tenant."""
        projected: list[Standing] = []
        for tenant, of_tenant in _group(batch, lambda received: received.message.tenant).items():
            texts = [received.message.model_dump_json() for received in of_tenant]
            snapshots = [entitlement_of(each.message, text) for each, text in zip(of_tenant, texts, strict=True)]
            entitled = entitle(unit.state(tenant), snapshots, unit.now, unit.policy)
            unit.absorb(entitled.outcome)
            if entitled.winner is not None:
                unit.keep_snapshot(tenant, texts[entitled.winner])
            projected.extend(entitled.projected)
            for received, became in zip(of_tenant, entitled.projected, strict=True):
                if became is Standing.CONFLICT:
                    detail = f"{tenant} has version {received.message.entitlement_version} with another body"
                    tx.dead_letter(received.record, codes.ENTITLEMENT_CONFLICT, detail)
        tx.after_commit(lambda: _count_projections(projected))


def _keyed(topic: Topic) -> Decode:
    """Read by ``ce_type``, and insist that the key is the tenant: order and ownership rest on it."""
    by_type = decode_by_type(topic)

    def decode(record: Record) -> UsageDelta | EntitlementSnapshot:
        message: UsageDelta | EntitlementSnapshot = by_type(record)
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
            _send(tx, address, received.record.key, told.model_dump_json())
        else:
            yield message
    if invalid:
        tx.after_commit(lambda: _count_invalid(invalid))


def _tell(unit: Unit, tx: Transaction, asked: Asked, decision: Decision, wrapping: Headers) -> None:
    """Answer the caller, and where the decision is new, store it and publish it."""
    body = answers.reply(decision, unit.now).model_dump_json(exclude_defaults=True)
    key = decision.ask.tenant.encode()
    _send(tx, asked.address, key, body)
    if decision.stored:
        unit.keep(decision, asked.body, body)
        name = f"{decision.ask.tenant}:{decision.ask.request_id}"
        headers = (*wrapping, ("ce_id", name.encode()), *asked.trace)
        tx.emit(OutboxMessage(QUOTA_DECISIONS.name, key, answers.event(decision, body).encode(), headers))


def _send(tx: Transaction, address: Address, key: bytes | None, body: str) -> None:
    headers = _JSON if address.correlation_id is None else (("correlation_id", address.correlation_id), *_JSON)
    tx.reply(Reply(address.topic, address.partition, key, body.encode(), headers))


def _group(items: Iterable[M], key: Callable[[M], str]) -> Mapping[str, list[M]]:
    """Group in order of first appearance; inside a group the order of arrival stays."""
    groups: dict[str, list[M]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def _kept_out(fact: Fact, code: Code) -> str:
    return f"deployment {fact.deployment} at revision {fact.revision}: {code.title}"


def _count_decisions(decisions: Iterable[Decision]) -> None:
    verdicts: Counter[tuple[str, str]] = Counter()
    refused: Counter[str] = Counter()
    passages: Counter[tuple[str, str]] = Counter()
    for decision in decisions:
        verdicts[decision.ask.verb, _verdict(decision)] += 1
        if decision.code is not None:
            refused[decision.code.code] += 1
        passages.update((verdict.gate, verdict.passage) for verdict in decision.gates)
    for (verb, verdict), count in verdicts.items():
        metrics.decisions.inc(count, verb=verb, verdict=verdict)
    for code, count in refused.items():
        metrics.refusals.inc(count, code=code)
    for (gate, passage), count in passages.items():
        metrics.gate_decisions.inc(count, gate=gate, outcome=passage)
        if passage == "fail_open":
            metrics.gate_fail_open.inc(count, gate=gate)


def _verdict(decision: Decision) -> str:
    if decision.repeats is not None:
        return "repeated"
    if decision.would_deny:
        return "would_deny"
    return "allowed" if decision.allowed else "denied"


def _count_invalid(invalid: Iterable[Code]) -> None:
    for code in invalid:
        metrics.decisions.inc(verb="none", verdict="invalid")
        metrics.refusals.inc(code=code.code)


def _count_settles(settlements: Iterable[Settlement]) -> None:
    for outcome, count in Counter(map(_outcome, settlements)).items():
        metrics.settles.inc(count, outcome=outcome)


def _outcome(settlement: Settlement) -> str:
    if settlement.outcome is not None:
        return settlement.outcome
    return "overflow" if settlement.code is codes.AMOUNT_OVERFLOW else "conflict"


def _count_projections(projected: Iterable[Standing]) -> None:
    for outcome, count in Counter(projected).items():
        metrics.projections.inc(count, outcome=outcome)
