"""Reported failures of nodes, updates, waiting and disks, each asked of ours. ``test_t`` and a number name the case."""

from typing import Any

from plimsoll_contracts import codes
from plimsoll_devkit.builders import NOW, Tenant, adjust, check, commit, content, fact, limits, release, reserve
from plimsoll_quota_enforcer.config import EnforcerSettings
from plimsoll_quota_enforcer.domain.model import TENANT, Gauge, Measured, Patience, Placing, Replica, ReplyTo
from plimsoll_quota_enforcer.domain.state import Edge

CPU, DISK = Gauge.CPU_RESERVED, Gauge.DISK
TIB = 2**40
BLOG = ("prod", "blog")


def pool(cpu: int, count: int = 1, **labels: str) -> dict[str, Any]:
    return {"placing": Placing("", "p", labels, (Replica("web", count, cpu, 0),))}


def waiting(name: str, deployment: str, cpu: int, **more: Any) -> Any:
    patience = Patience(100, ReplyTo("quota.replies.cases", None, None), "{}")
    return reserve(name, deployment, content(cpu=cpu), patience=patience, **more)


def with_nodes(limit: int, **cpus: int) -> Tenant:
    tenant = Tenant({TENANT: limits(cpu=limit)})
    for name, cpu in cpus.items():
        tenant.node(name, cpu, 100, pool="p")
    return tenant


def test_t64_what_is_suspended_gives_back_and_what_only_began_does_too_in_time() -> None:
    tenant = with_nodes(10, n1=10)
    tenant.ask(reserve("r1", "d1", content(cpu=4), **pool(4)))
    tenant.ask(commit("c1", "r1"))
    tenant.ask(adjust("suspend", "d1", content()))
    tenant.ask(reserve("r2", "d2", content(cpu=3), ttl_seconds=60, **pool(3)))
    assert (tenant.used(CPU), tenant.total(CPU), tenant.nodes["n1"].allocated) == (0, 3, (3, 0))
    tenant.wait(60)
    tenant.sweep()
    assert (tenant.total(CPU), tenant.nodes["n1"].allocated) == (0, (0, 0))


def test_t82_what_no_node_can_run_is_refused_not_left_pending() -> None:
    tenant = with_nodes(100, n1=4, n2=3)
    for where, code in ((pool(8), codes.POOL_FULL), (pool(5), codes.REPLICA_TOO_LARGE)):
        decision = tenant.ask(check("d", content(cpu=1), **where))
        assert (decision.code, {short.largest_free for short in decision.shortfalls}) == (code, {4})
    on_node = Placing("n1", replicas=(Replica("web", 1, 8, 0),))
    decision = tenant.ask(reserve("r1", "d", content(cpu=8), placing=on_node))
    assert (decision.code, decision.shortfalls[0].largest_free) == (codes.NODE_CPU, 4)


def test_t83_room_in_pieces_is_told_from_room_in_one_and_labels_say_how_many_nodes_there_are() -> None:
    tenant = with_nodes(100, n1=4, n2=4)
    assert tenant.ask(reserve("r1", "d1", content(cpu=6), **pool(6))).code is codes.REPLICA_TOO_LARGE
    assert tenant.ask(reserve("r2", "d1", content(cpu=6), **pool(3, 2))).allowed
    tenant.node("n3", 2, 100, pool="p", labels={"disk": "ssd"})
    (short,) = tenant.ask(reserve("r3", "d2", content(cpu=3), **pool(1, 3, disk="ssd"))).shortfalls
    assert (short.eligible, short.capacity) == (1, 2)


def test_t84_freed_room_wakes_who_waits_and_each_is_told_what_it_lacks() -> None:
    tenant = with_nodes(10, n1=4)
    tenant.run("d0", content(cpu=8))
    tenant.ask(waiting("quota", "d1", 4))
    tenant.ask(waiting("node", "d2", 2, **pool(5)))
    assert [next(iter(waiter.lacks))[1:] for waiter in tenant.waiters] == [("", "0"), ("pool", "p")]
    tenant.settle(fact("d0", 2, content(cpu=6)))
    assert [(one.ask.request_id, one.allowed) for one in tenant.woken] == [("quota", True)]
    tenant.wait(100)
    tenant.sweep()
    assert tenant.woken[1].code is codes.CPU_EXCEEDED, "by now it is quota"
    assert EnforcerSettings.model_fields["sweep_seconds"].default <= 1, "room on nodes is seen within a second"


def test_t85_quota_is_taken_once_however_many_nodes_were_tried() -> None:
    tenant = with_nodes(1, n1=0, n2=0, n3=1)
    assert tenant.ask(reserve("r1", "d1", content(cpu=1), **pool(1))).allowed
    assert (tenant.total(CPU), [node.allocated[0] for node in tenant.nodes.values()]) == (1, [0, 0, 1])


def test_t87_what_has_failed_or_ended_holds_no_node() -> None:
    tenant = with_nodes(100, n1=4)
    tenant.ask(reserve("r1", "d1", content(cpu=4), **pool(4)))
    tenant.ask(release("failed", "r1"))
    assert tenant.ask(reserve("r2", "d2", content(cpu=4), **pool(4))).allowed
    tenant.ask(commit("c2", "r2"))
    tenant.settle(fact("d2", 9, None))
    assert tenant.ask(reserve("r3", "d3", content(cpu=4), **pool(4))).allowed


def test_t89_an_update_at_the_limit_goes_stop_first_and_a_surge_is_told_that_it_needs_room() -> None:
    tenant = with_nodes(2, n1=2)
    tenant.ask(reserve("r1", "old", content(cpu=2), **pool(2)))
    tenant.ask(commit("c1", "r1"))
    surge = tenant.ask(reserve("r2", "new", content(cpu=2), replaces=("old",), surge=True, **pool(2)))
    assert surge.code is codes.CPU_EXCEEDED
    assert [violation.would_fit for violation in surge.violations] == [0, 1]
    assert [short.code for short in surge.shortfalls] == [codes.POOL_FULL, codes.REPLICA_TOO_LARGE]
    assert tenant.ask(reserve("r3", "new", content(cpu=2), replaces=("old",), **pool(2))).allowed
    tenant.ask(commit("c3", "r3"))
    assert (tenant.used(CPU), tenant.total(CPU), tenant.nodes["n1"].allocated) == (2, 2, (2, 0))


def test_t100_more_on_disk_than_was_declared_is_said_with_the_first_scan_and_stops_the_next() -> None:
    tenant = Tenant({TENANT: limits(disk=TIB)})
    assert tenant.ask(reserve("r1", "d1", content(BLOG, disk=TIB))).allowed
    tenant.ask(commit("c1", "r1"))
    assert not tenant.ask(reserve("r2", "d2", content(BLOG, disk=1))).allowed
    tenant.measure(BLOG, Measured(4 * TIB, (1, 1), NOW, "walk", complete=True))
    (crossing,) = tenant.crossings
    assert (crossing.edge, crossing.info.gauge, crossing.usage) == (Edge.STARTED, DISK, 4 * TIB)
    refused = tenant.ask(reserve("r3", "d2", content(BLOG, disk=1)))
    assert (refused.code, refused.violations[0].used) == (codes.DISK_EXCEEDED, 4 * TIB)
