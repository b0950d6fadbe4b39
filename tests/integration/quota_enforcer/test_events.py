"""What watchers are told: decisions and limits, with what the contracts say, in the tenant's order."""

from typing import Any

from aiokafka import ConsumerRecord

from plimsoll_contracts.enforcement import DecisionEvent, ThresholdReached
from plimsoll_contracts.envelope import parse_headers
from plimsoll_contracts.topics import QUOTA_DECISIONS, QUOTA_LIMITS, USAGE_DELTAS, Topic
from plimsoll_devkit.platform import Platform
from plimsoll_devkit.wire import Wire, asking

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def records(wire: Wire, topic: Topic, tenant: str, count: int) -> list[ConsumerRecord]:
    return await wire.until(topic.name, lambda record: record.key == tenant.encode(), count=count)


async def test_a_decision_is_published_with_all_it_says(quota: Platform, wire: Wire, tenant: str) -> None:
    await quota.set_limits(tenant, {"cpu": 150})
    first, second = asking("reserve", tenant, app="web"), asking("reserve", tenant, deployment="d2", mode="enforce")
    allowed = await wire.ask(first, more=[("traceparent", TRACE.encode())])
    denied = await wire.ask(second)

    one, two = await records(wire, QUOTA_DECISIONS, tenant, 2)

    envelope = parse_headers(one.headers)
    assert (envelope.id, envelope.type) == (f"{tenant}:{first['request_id']}", "quota.decision.v1")
    assert envelope.traceparent == TRACE
    assert parse_headers(two.headers).traceparent is None
    told = DecisionEvent.model_validate_json(one.value)
    assert told.model_dump(include=set(type(allowed).model_fields)) == allowed.model_dump()
    assert (told.environment, told.stack, told.app, told.deployment) == ("prod", "blog", "web", "d1")
    refused = DecisionEvent.model_validate_json(two.value)
    assert refused.violations == denied.violations
    assert (refused.allowed, refused.code, refused.deployment) == (False, denied.code, "d2")


async def test_every_stored_decision_is_published_once_and_in_order(quota: Platform, wire: Wire, tenant: str) -> None:
    for number in range(25):
        question = asking("reserve", tenant, deployment=f"d{number}")
        await wire.ask(question)
        await wire.ask(question)
        await wire.ask(asking("check", tenant, deployment=f"c{number}"))
        await wire.ask(asking("commit", tenant, hold=question["request_id"]))

    events = await wire.events(QUOTA_DECISIONS, tenant, count=50)

    stored = [decision["request_id"] for decision in await quota.decisions(tenant)]
    assert [event.request_id for event in events] == stored
    seqs = [event.seq for event in events]
    assert seqs == sorted(set(seqs))


async def test_a_commit_names_the_deployment_it_settled(wire: Wire, tenant: str) -> None:
    question = asking("reserve", tenant)
    await wire.ask(question)
    await wire.ask(asking("commit", tenant, hold=question["request_id"], revision=3))

    _, event = await wire.events(QUOTA_DECISIONS, tenant, count=2)

    assert (event.verb, event.deployment) == ("commit", "d1")
    assert (event.settled.outcome, event.settled.revision) == ("settled", 3)
    assert event.hold.state == "committed"


async def test_limits_and_crossings_are_told_in_the_tenants_order(quota: Platform, wire: Wire, tenant: str) -> None:
    await quota.set_limits(tenant, {"cpu": 500, "memory": "1g"}, reason="a start")
    await wire.ask(asking("adjust", tenant, footprint={"cpu": 600}))
    await quota.set_limits(tenant, {"cpu": "unlimited"}, mode="shadow")
    await quota.set_limits(tenant, {"cpu": 100}, environment="prod", force=True)

    told = await wire.events(QUOTA_LIMITS, tenant, count=18)
    kinds = [parse_headers(record.headers).type for record in await records(wire, QUOTA_LIMITS, tenant, 18)]
    thresholds = [event for event in told if isinstance(event, ThresholdReached)]
    events = [event for event in told if event not in thresholds]
    kinds = [kind for kind in kinds if "threshold" not in kind]

    changed, started, ended = "quota.limit_changed.v1", "quota.over_limit_started.v1", "quota.over_limit_ended.v1"
    assert kinds == [changed, changed, started, changed, ended, changed, started, started]
    assert [event.dimension for event in events[:2]] == ["cpu", "memory"]
    assert {event.reason for event in events[:2]} == {"a start"}
    cpu, unlimited = events[0], events[3]
    assert (cpu.before, cpu.after, cpu.version, cpu.mode, cpu.changed_by) == (None, 500, 1, "enforce", "admin")
    assert (unlimited.before, unlimited.after, unlimited.version, unlimited.mode) == (500, "unlimited", 2, "shadow")
    assert (events[2].basis, events[2].over_by, events[4].limit) == ("reserved", 100, None)
    assert [(event.scope, event.basis, event.over_by) for event in events[6:]] == [
        (f"{tenant}/env:prod", "reserved", 500),
        (f"{tenant}/env:prod", "burst", 450),
    ]
    seqs = [event.seq for event in told]
    assert seqs == sorted(seqs)
    assert {(event.scope, event.threshold) for event in thresholds} == {
        (scope, threshold) for scope in (tenant, f"{tenant}/env:prod") for threshold in ("80%", "100%")
    }


async def test_ids_of_events_name_their_cause(quota: Platform, wire: Wire, tenant: str) -> None:
    await quota.set_limits(tenant, {"cpu": 50, "memory": 50, "vapps": 1})
    for revision in (1, 2, 3):
        after: dict[str, Any] | None = {"cpu": 60, "memory": 60, "vapps": 2} if revision != 2 else None
        await wire.tell(USAGE_DELTAS, {"tenant": tenant, "deployment": "d", "revision": revision, "after": after})
        # Waited for: there and back inside one batch is no crossing.
        found = await records(wire, QUOTA_LIMITS, tenant, 3 + 3 * revision)

    ids = [(envelope := parse_headers(record.headers)).source + envelope.id for record in found]
    assert len(set(ids)) == len(ids), "no two events share an id, so a reader can drop what it has seen"
