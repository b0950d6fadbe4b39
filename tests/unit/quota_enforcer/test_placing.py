"""Capacity: room on nodes and in pools, beside quota and with it, whatever has happened before (DESIGN 5.5)."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.quota_enforcer.histories import Step, allocated, histories, played

from plimsoll_contracts import codes
from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import HoldState, Mode
from plimsoll_devkit.builders import (
    Tenant,
    adjust,
    check,
    commit,
    content,
    fact,
    limits,
    release,
    reserve,
)
from plimsoll_quota_enforcer.domain import placing
from plimsoll_quota_enforcer.domain.model import TENANT, Content, Node, Placing, Replica
from plimsoll_quota_enforcer.domain.state import Decision
from plimsoll_quota_enforcer.domain.tally import INT64_MAX


def on(node: str, cpu: int, memory: int = 0) -> dict[str, object]:
    """A target of so much, on a node."""
    return {
        "target": content(cpu=cpu, memory=memory),
        "placing": Placing(node, replicas=(Replica("", 1, cpu, memory),)),
    }


def pooled(*sizes: int, count: int = 1, labels: dict[str, str] | None = None) -> dict[str, object]:
    """A target of services of these sizes, anywhere in pool ``p``."""
    replicas = tuple(Replica(f"s{number}", count, cpu, 0) for number, cpu in enumerate(sizes))
    return {"target": content(cpu=sum(sizes) * count), "placing": Placing("", "p", labels or {}, replicas)}


def ask(tenant: Tenant, name: str, deployment: str, where: dict[str, object], **more: object) -> Decision:
    known = dict(where)
    target = known.pop("target")
    assert isinstance(target, Content)
    return tenant.ask(reserve(name, deployment, target, **known, **more))


def with_nodes(**cpus: int) -> Tenant:
    """A tenant without limits, and nodes of pool ``p`` with so much cpu."""
    tenant = Tenant()
    for name, cpu in cpus.items():
        tenant.node(name, cpu, 100, pool="p")
    return tenant


def used(tenant: Tenant) -> dict[str, int]:
    return {name: node.allocated[0] for name, node in tenant.nodes.items()}


def placed(decision: Decision) -> dict[str, int]:
    assert decision.hold is not None
    return {name: cpu for name, cpu, _ in decision.hold.target.nodes}


def test_a_node_is_full_when_it_is_full_and_says_what_is_free() -> None:
    tenant = with_nodes(n1=10)
    assert ask(tenant, "r1", "d1", on("n1", 6)).allowed
    decision = ask(tenant, "r2", "d2", on("n1", 5, 101))
    assert decision.code is codes.NODE_CPU
    cpu, memory = decision.shortfalls
    assert (cpu.code, cpu.node, cpu.capacity, cpu.allocated, cpu.asked, cpu.largest_free) == (
        codes.NODE_CPU,
        "n1",
        10,
        6,
        5,
        4,
    )
    assert (memory.code, memory.dimension, memory.largest_free) == (codes.NODE_MEMORY, Dimension.MEMORY, 100)
    assert ask(tenant, "r3", "d2", on("n1", 4)).allowed
    assert used(tenant) == {"n1": 10}


def test_limits_come_before_capacity_and_both_are_told() -> None:
    tenant = with_nodes(n1=2)
    tenant.limits[TENANT] = limits(cpu=3)
    decision = ask(tenant, "r1", "d1", on("n1", 4))
    assert (decision.code, len(decision.violations), len(decision.shortfalls)) == (codes.CPU_EXCEEDED, 1, 1)
    assert (used(tenant), tenant.open_holds()) == ({"n1": 0}, set())


def test_a_refused_placement_holds_no_quota() -> None:
    tenant = with_nodes(n1=2)
    assert ask(tenant, "r1", "d1", on("n1", 3)).code is codes.NODE_CPU
    assert tenant.changes == []


def test_a_node_without_capacity_or_never_heard_of_is_no_gate_and_is_counted() -> None:
    tenant = Tenant()
    decision = ask(tenant, "r1", "d1", on("n9", 1000))
    assert decision.allowed
    assert "never told its capacity" in decision.notes[0]
    assert used(tenant) == {"n9": 1000}
    tenant.node("n9", 10, 10)
    assert ask(tenant, "r2", "d2", on("n9", 1)).code is codes.NODE_CPU


def test_a_pool_of_which_no_node_told_its_capacity_is_no_gate() -> None:
    tenant = Tenant()
    tenant.nodes["n1"] = Node("n1", "p")
    decision = ask(tenant, "r1", "d1", pooled(1000))
    assert decision.allowed
    assert ("capacity was not checked" in decision.notes[0], placed(decision)) == (True, {})


def test_only_growth_is_judged_on_a_node_that_shrank() -> None:
    tenant = with_nodes(n1=10)
    ask(tenant, "r1", "d1", on("n1", 8))
    tenant.ask(commit("c1", "r1"))
    tenant.node("n1", 5, 100)
    for cpu, allowed in ((8, True), (6, True), (9, False)):
        decision = tenant.ask(check("d1", content(cpu=cpu), placing=Placing("n1", replicas=(Replica("", 1, cpu, 0),))))
        assert decision.allowed is allowed
    assert not ask(tenant, "r2", "d2", on("n1", 1)).allowed


def test_a_node_that_takes_nothing_new_keeps_what_runs_there() -> None:
    tenant = with_nodes(n1=10)
    ask(tenant, "r1", "d1", on("n1", 4))
    tenant.ask(commit("c1", "r1"))
    tenant.node("n1", 10, 100, pool="p", schedulable=False)
    assert ask(tenant, "r2", "d2", on("n1", 1)).shortfalls[0].largest_free == 0
    assert ask(tenant, "r3", "d3", pooled(1)).shortfalls[0].eligible == 0
    assert ask(tenant, "r4", "d1", on("n1", 4)).allowed


def test_a_deployment_may_use_the_room_that_it_has() -> None:
    tenant = with_nodes(n1=10)
    ask(tenant, "r1", "d1", on("n1", 10))
    tenant.ask(commit("c1", "r1"))
    assert ask(tenant, "r2", "d1", on("n1", 10)).allowed
    assert used(tenant) == {"n1": 10}


def test_in_a_pool_too_a_deployment_may_grow_into_its_room_and_what_is_free_beside_it() -> None:
    tenant = with_nodes(n1=10)
    ask(tenant, "r1", "d1", pooled(4))
    tenant.ask(commit("c1", "r1"))
    assert ask(tenant, "r2", "d1", pooled(11)).shortfalls[0].largest_free == 10
    assert placed(ask(tenant, "r3", "d1", pooled(9))) == {"n1": 9}


def test_a_replacement_uses_the_room_of_what_it_replaces_and_a_surge_does_not() -> None:
    tenant = with_nodes(n1=10)
    ask(tenant, "r1", "d1", on("n1", 8))
    tenant.ask(commit("c1", "r1"))
    surged = ask(tenant, "r2", "d2", on("n1", 8), replaces=("d1",), surge=True)
    assert (surged.code, surged.shortfalls[0].allocated, surged.shortfalls[0].largest_free) == (codes.NODE_CPU, 8, 2)
    assert ask(tenant, "r3", "d2", on("n1", 9), replaces=("d1",)).allowed
    assert used(tenant) == {"n1": 9}
    tenant.ask(commit("c3", "r3"))
    assert used(tenant) == {"n1": 9}


def test_a_surge_that_fits_counts_on_top_until_its_commit() -> None:
    tenant = with_nodes(n1=10)
    ask(tenant, "r1", "d1", on("n1", 4))
    tenant.ask(commit("c1", "r1"))
    assert ask(tenant, "r2", "d2", on("n1", 6), replaces=("d1",), surge=True).allowed
    assert used(tenant) == {"n1": 10}
    tenant.ask(commit("c2", "r2"))
    assert used(tenant) == {"n1": 6}


@pytest.mark.parametrize("replaces", [(), ("old",)])
def test_a_superseding_reserve_may_use_the_room_of_the_hold_that_it_closes(replaces: tuple[str, ...]) -> None:
    tenant = with_nodes(n1=4)
    assert ask(tenant, "r1", "d1", on("n1", 4), replaces=replaces).allowed
    assert ask(tenant, "r2", "d1", on("n1", 5), supersedes="r1").code is codes.NODE_CPU
    assert ask(tenant, "r3", "d1", on("n1", 4), supersedes="r1", replaces=replaces).allowed
    assert used(tenant) == {"n1": 4}


def test_what_a_superseded_hold_replaced_stays_where_it_is() -> None:
    tenant = with_nodes(n1=10)
    ask(tenant, "r0", "old", on("n1", 6))
    tenant.ask(commit("c0", "r0"))
    ask(tenant, "r1", "d1", on("n1", 10), replaces=("old",))
    assert not ask(tenant, "r2", "d1", on("n1", 5), supersedes="r1").allowed
    assert ask(tenant, "r3", "d1", on("n1", 4), supersedes="r1").allowed
    assert used(tenant) == {"n1": 10}


def test_a_commit_keeps_the_nodes_that_were_found_and_frees_the_old_ones_only_then() -> None:
    tenant = with_nodes(n1=4, n2=8)
    ask(tenant, "r1", "d1", on("n1", 4))
    tenant.ask(commit("c1", "r1"))
    ask(tenant, "r2", "d1", on("n2", 5))
    assert used(tenant) == {"n1": 4, "n2": 5}
    tenant.ask(commit("c2", "r2"))
    assert used(tenant) == {"n1": 0, "n2": 5}


def test_a_commit_may_name_the_real_nodes() -> None:
    tenant = with_nodes(n1=4, n2=8)
    ask(tenant, "r1", "d1", on("n2", 4))
    tenant.ask(commit("c1", "r1", nodes=(("n1", 3, 0), ("n3", 1, 0))))
    assert used(tenant) == {"n1": 3, "n2": 0, "n3": 1}
    tenant.ask(adjust("a1", "d1", content(cpu=4), nodes=(("n2", 4, 0),)))
    assert used(tenant) == {"n1": 0, "n2": 4, "n3": 0}


def test_where_nothing_is_said_of_nodes_a_deployment_stays_on_them_until_it_is_gone_or_reserves_nothing() -> None:
    tenant = with_nodes(n1=9)
    ask(tenant, "r1", "d1", on("n1", 4))
    tenant.ask(commit("c1", "r1"))
    tenant.settle(fact("d1", 2, content(cpu=5)))
    tenant.ask(reserve("r2", "d1", content(cpu=6)))
    tenant.ask(commit("c2", "r2"))
    assert used(tenant) == {"n1": 4}
    tenant.ask(adjust("park", "d1", content(disk=1)))
    assert used(tenant) == {"n1": 0}
    ask(tenant, "r3", "d1", on("n1", 4))
    tenant.ask(commit("c3", "r3"))
    tenant.ask(reserve("r4", "d1", content()))
    tenant.ask(commit("c4", "r4"))
    assert used(tenant) == {"n1": 0}
    ask(tenant, "r5", "d1", on("n1", 4))
    tenant.ask(commit("c5", "r5"))
    tenant.settle(fact("d1", 99, None))
    assert used(tenant) == {"n1": 0}


def test_a_commit_after_expiry_is_on_its_nodes_again() -> None:
    tenant = with_nodes(n1=4, n2=4)
    ask(tenant, "r1", "d1", on("n1", 4), ttl_seconds=60)
    tenant.wait(61)
    tenant.sweep()
    assert used(tenant) == {"n1": 0, "n2": 0}
    tenant.ask(commit("c1", "r1"))
    assert used(tenant) == {"n1": 4, "n2": 0}


def test_release_and_expiry_free_nodes() -> None:
    tenant = with_nodes(n1=4)
    ask(tenant, "r1", "d1", on("n1", 4))
    tenant.ask(release("x1", "r1"))
    assert used(tenant) == {"n1": 0}
    ask(tenant, "r2", "d1", on("n1", 4), ttl_seconds=60)
    tenant.wait(61)
    tenant.relimit(TENANT, limits(cpu=1))
    assert (used(tenant), tenant.holds["r2"].state) == ({"n1": 0}, HoldState.EXPIRED)


def test_the_largest_replica_goes_first_onto_the_node_with_most_free() -> None:
    decision = ask(with_nodes(n1=5, n2=8, n3=6), "r1", "d1", pooled(1, 7, 6))
    assert placed(decision) == {"n1": 1, "n2": 7, "n3": 6}


def test_equal_nodes_are_taken_by_name_and_in_turn() -> None:
    assert placed(ask(with_nodes(n2=4, n1=4), "r1", "d1", pooled(2, count=3))) == {"n1": 4, "n2": 2}


def test_a_pool_in_pieces_holds_two_of_three_and_not_one_of_six() -> None:
    tenant = with_nodes(n1=4, n2=4)
    decision = ask(tenant, "r1", "d1", pooled(6))
    (short,) = decision.shortfalls
    assert decision.code is codes.REPLICA_TOO_LARGE
    assert (short.capacity, short.allocated, short.asked, short.largest_free, short.eligible) == (8, 0, 6, 4, 2)
    assert placed(ask(tenant, "r2", "d1", pooled(3, count=2))) == {"n1": 3, "n2": 3}


def test_where_each_replica_fits_but_not_all_the_pool_is_full() -> None:
    tenant = with_nodes(n1=5, n2=5)
    decision = ask(tenant, "r1", "d1", pooled(3, count=3))
    (short,) = decision.shortfalls
    assert (decision.code, short.asked, short.largest_free) == (codes.POOL_FULL, 9, 2)
    both = ask(tenant, "r2", "d1", pooled(6, 6)).shortfalls
    assert [each.code for each in both] == [codes.POOL_FULL, codes.REPLICA_TOO_LARGE]
    assert [(each.asked, each.largest_free) for each in both] == [(12, 5), (6, 5)]


def test_only_nodes_with_the_labels_are_eligible() -> None:
    tenant = Tenant()
    tenant.node("n1", 4, 4, pool="p", labels={"disk": "ssd", "zone": "a"})
    tenant.node("n2", 9, 9, pool="p", labels={"zone": "a"})
    tenant.node("n3", 9, 9, pool="q", labels={"disk": "ssd"})
    assert placed(ask(tenant, "r1", "d1", pooled(4, labels={"disk": "ssd"}))) == {"n1": 4}
    short = ask(tenant, "r2", "d2", pooled(1, labels={"disk": "ssd"})).shortfalls[0]
    assert (short.code, short.eligible, short.capacity, short.largest_free) == (codes.POOL_FULL, 1, 4, 0)
    assert ask(tenant, "r3", "d2", pooled(1, labels={"disk": "tape"})).shortfalls[0].eligible == 0


def test_in_shadow_mode_a_full_node_is_said_and_let_through_without_room_on_it() -> None:
    tenant = with_nodes(n1=1)
    decision = ask(tenant, "r1", "d1", on("n1", 2), mode=Mode.SHADOW)
    assert (decision.allowed, decision.would_deny, used(tenant)) == (True, True, {"n1": 0})


def test_what_other_tenants_have_on_a_node_is_not_free() -> None:
    tenant = with_nodes(n1=10)
    tenant.nodes["n1"] = tenant.nodes["n1"].allocating(7, 0)
    assert ask(tenant, "r1", "d1", on("n1", 4)).shortfalls[0].allocated == 7
    assert ask(tenant, "r2", "d1", on("n1", 3)).allowed


def test_what_is_allocated_stays_in_64_bits_whoever_says_where_it_runs() -> None:
    tenant = with_nodes(n1=10)
    tenant.nodes["n1"] = tenant.nodes["n1"].allocating(INT64_MAX - 5, 0)
    assert tenant.ask(adjust("a1", "d1", content(cpu=6), nodes=(("n1", 6, 0),))).code is codes.AMOUNT_OVERFLOW
    assert tenant.charges == {}
    assert tenant.ask(adjust("a2", "d1", content(cpu=6), nodes=(("n1", 5, 0),))).allowed
    tenant.nodes["n1"] = Node("n1", allocated=(INT64_MAX, 0))
    assert ask(tenant, "r1", "d2", on("n1", 1)).code is codes.AMOUNT_OVERFLOW


def fits(sizes: list[tuple[int, int]], rooms: list[tuple[int, int]]) -> bool:
    """Try every way to put these replicas onto nodes with so much room."""
    return any(
        all(
            sum(size[i] for size, at in zip(sizes, ways, strict=True) if at == node) <= rooms[node][i]
            for node in range(len(rooms))
            for i in (0, 1)
        )
        for ways in product(range(len(rooms)), repeat=len(sizes))
    )


_rooms = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=3)
_sizes = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=5)


@given(_rooms, _sizes)
def test_a_yes_of_a_pool_is_a_way_that_trying_everything_finds_too(
    rooms: list[tuple[int, int]], sizes: list[tuple[int, int]]
) -> None:
    nodes = {f"n{i}": Node(f"n{i}", "p", capacity=room) for i, room in enumerate(rooms)}
    replicas = tuple(Replica(f"s{i}", 1, *size) for i, size in enumerate(sizes))
    found = placing.place(Placing("", "p", {}, replicas), nodes, {})
    told = {short.code for short in found.shortfalls}
    alone = all(fits([size], rooms) for size in sizes)
    if not told:
        assert fits(sizes, rooms)
        capacities = {name: node.capacity or (0, 0) for name, node in nodes.items()}
        assert all(cpu <= capacities[name][0] and memory <= capacities[name][1] for name, cpu, memory in found.nodes)
        for i in (0, 1):
            assert sum((cpu, memory)[i] for _, cpu, memory in found.nodes) == sum(size[i] for size in sizes)
    assert (codes.REPLICA_TOO_LARGE in told) is not alone
    if any(sum(size[i] for size in sizes) > sum(room[i] for room in rooms) for i in (0, 1)):
        assert codes.POOL_FULL in told


@given(_rooms, st.integers(1, 5), st.tuples(st.integers(0, 5), st.integers(0, 5)))
def test_for_replicas_that_are_alike_the_answer_is_that_of_trying_everything(
    rooms: list[tuple[int, int]], count: int, size: tuple[int, int]
) -> None:
    nodes = {f"n{i}": Node(f"n{i}", "p", capacity=room) for i, room in enumerate(rooms)}
    found = placing.place(Placing("", "p", {}, (Replica("s", count, *size),)), nodes, {})
    assert (not found.shortfalls) is fits([size] * count, rooms)


@given(histories)
def test_what_is_allocated_is_what_charges_and_holds_have_there_after_every_step(history: list[Step]) -> None:
    def watch(tenant: Tenant) -> None:
        assert {name: node.allocated for name, node in tenant.nodes.items()} == allocated(tenant)

    played(history, watch=watch)


@given(histories)
def test_no_allowed_reserve_takes_a_node_above_its_capacity(history: list[Step]) -> None:
    before: dict[str, tuple[int, int]] = {}
    seen: set[str] = set()

    def watch(tenant: Tenant) -> None:
        new = {hold for hold in tenant.open_holds() if tenant.holds[hold].target.nodes} - seen
        for name, node in tenant.nodes.items():
            for i in (0, 1):
                grew = node.allocated[i] > before.get(name, (0, 0))[i]
                if new and grew and node.capacity is not None:
                    assert node.allocated[i] <= node.capacity[i]
        seen.update(tenant.holds)
        before.update({name: node.allocated for name, node in tenant.nodes.items()})

    played(history, watch=watch)
