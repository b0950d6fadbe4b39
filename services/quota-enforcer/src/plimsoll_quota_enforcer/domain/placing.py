"""Is there room on nodes, and where: capacity is judged beside quota, on what is reserved, raw (DESIGN 5.5)."""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from plimsoll_contracts import codes
from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import HoldState, Verb
from plimsoll_quota_enforcer.domain.model import Ask, Content, Fact, Node, NodeShare, Placing, Replica
from plimsoll_quota_enforcer.domain.shares import Share
from plimsoll_quota_enforcer.domain.state import Shortfall, TenantState

Room = tuple[int, int]
"""Millicores and bytes."""

_NONE: Room = (0, 0)
_DIMENSIONS = (Dimension.CPU, Dimension.MEMORY)
_NODE_CODES = (codes.NODE_CPU, codes.NODE_MEMORY)


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a deployment would run, or what is missing; and what to know about it."""

    nodes: tuple[NodeShare, ...] = ()
    shortfalls: tuple[Shortfall, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Needed:
    """Nodes that must be locked before anything is decided: by name, and whole pools."""

    nodes: frozenset[str]
    pools: frozenset[str]
    looked_at: frozenset[str]
    """Only asked about, by checks: one that is not known stays unknown."""


def needed(states: Mapping[str, TenantState], asks: Sequence[Ask], facts: Iterable[Fact], now: datetime) -> Needed:
    """Find every node on which these requests and facts, expiring holds and waiters may move what is allocated."""
    nodes: set[str] = set()
    pools: set[str] = set()
    looked_at = {ask.placing.node for ask in asks if ask.placing is not None and ask.verb is Verb.CHECK}
    for ask in asks:
        _add_asked(states[ask.tenant], ask, nodes, pools)
    for fact in facts:
        _add_present(states[fact.tenant], (fact.deployment,), nodes)
    for state in states.values():
        for waiter in state.waiters:
            _add_asked(state, waiter.ask, nodes, pools)
        if state.next_expiry is not None and state.next_expiry <= now:
            for hold in state.holds.values():
                if hold.state is HoldState.OPEN and hold.expires_at <= now:
                    _add_present(state, hold.members, nodes)
    return Needed(frozenset(nodes), frozenset(pools), frozenset(looked_at) - {""})


def _add_asked(state: TenantState, ask: Ask, nodes: set[str], pools: set[str]) -> None:
    if ask.placing is not None:
        if not ask.placing.node:
            pools.add(ask.placing.pool)
        elif ask.verb is not Verb.CHECK:
            nodes.add(ask.placing.node)
    named = [state.holds[name] for name in (ask.hold, ask.supersedes or "") if name in state.holds]
    # A closed hold too has nodes: where it expired, its commit settles them all the same.
    shares = [ask.nodes or (), *(hold.target.nodes for hold in named)]
    nodes.update(node for each in shares for node, _, _ in each)
    members = [ask.deployment, *ask.replaces, *(member for hold in named for member in hold.members)]
    _add_present(state, members, nodes)


def _add_present(state: TenantState, deployments: Iterable[str], nodes: set[str]) -> None:
    """Add the nodes that deployments, and all that open holds bind to them, have something on."""
    for deployment in deployments:
        hold = state.holds.get(state.open_holds.get(deployment, ""))
        if hold is not None:
            nodes.update(node for node, _, _ in hold.target.nodes)
        for member in hold.members if hold is not None else (deployment,):
            charge = state.charges.get(member)
            if charge is not None:
                nodes.update(node for node, _, _ in charge.content.nodes)


def moved(before: Iterable[Share], after: Iterable[Share]) -> Mapping[str, Room]:
    """Return by how much the allocation of each node changes with these shares instead of those."""
    change: dict[str, Room] = {}
    for sign, shares in ((-1, before), (1, after)):
        for share in shares:
            for node, (cpu, memory) in allocation(share).items():
                have = change.get(node, _NONE)
                change[node] = (have[0] + sign * cpu, have[1] + sign * memory)
    return {node: room for node, room in change.items() if room != _NONE}


def allocation(share: Share) -> Mapping[str, Room]:
    """Return what a share has on each node: ``max(sum settled, target)``, or the target on top (rule 4)."""
    charge, hold = share.charge, share.hold
    if hold is None or not (hold.target.nodes or share.replaced):
        charged = charge is not None and not charge.gone and charge.content.nodes
        return _by_node([charge.content]) if charge is not None and charged else {}
    own = _by_node([charge.content] if charge is not None and not charge.gone else [])
    replaced = _by_node([each.content for each in share.replaced if not each.gone])
    target = _by_node([hold.target])
    found: dict[str, Room] = {}
    for node in {*own, *replaced, *target}:
        mine, theirs, wanted = own.get(node, _NONE), replaced.get(node, _NONE), target.get(node, _NONE)
        if hold.surge:
            found[node] = _plus(theirs, _larger(mine, wanted))
        else:
            found[node] = _larger(_plus(mine, theirs), wanted)
    return found


def place(placing: Placing, nodes: Mapping[str, Node], own: Mapping[str, Room]) -> Placed:
    """Find room for a deployment.

    Args:
        placing: where it shall run, and its replicas.
        nodes: all that may be needed; one that is not there, or never told its capacity, is no gate.
        own: what the deployment, and what it replaces without a surge, have on each node already: it may use that.
    """
    if placing.node:
        return _on_node(placing, nodes.get(placing.node), own.get(placing.node, _NONE))
    pool = [node for node in nodes.values() if node.pool == placing.pool and node.capacity is not None]
    if not pool:
        return Placed(notes=(f"no node of pool {placing.pool} has told its capacity: capacity was not checked",))
    eligible = [node for node in pool if node.schedulable and placing.labels.items() <= node.labels.items()]
    return _in_pool(placing, eligible, own)


def _on_node(placing: Placing, node: Node | None, own: Room) -> Placed:
    asked = _sum(placing.replicas)
    share = ((placing.node, *asked),) if asked != _NONE else ()
    if node is None or node.capacity is None:
        note = f"node {placing.node} never told its capacity: capacity was not checked"
        return Placed(share, notes=(note,))
    others = (node.allocated[0] - own[0], node.allocated[1] - own[1])
    free = [max(0, have - theirs) for have, theirs in zip(node.capacity, others, strict=True)]
    if not node.schedulable:
        free = list(own)  # what runs there stays, nothing new comes
    short = [
        Shortfall(_NODE_CODES[i], node.name, "", _DIMENSIONS[i], node.capacity[i], others[i], asked[i], free[i], 1)
        for i in (0, 1)
        if asked[i] > max(free[i], own[i])
    ]
    return Placed((), tuple(short)) if short else Placed(share)


def _in_pool(placing: Placing, eligible: Sequence[Node], own: Mapping[str, Room]) -> Placed:
    free = {node.name: _free(node, own.get(node.name, _NONE)) for node in eligible}
    total, asked = _plus_all(free.values()), _sum(placing.replicas)
    scale = (max(1, total[0]), max(1, total[1]))
    largest = (_largest(free, 0), _largest(free, 1))
    short = [(codes.POOL_FULL, i, asked[i], largest[i]) for i in (0, 1) if asked[i] > total[i]]
    alone = [size for each in placing.replicas if each.count and (size := (each.cpu, each.memory)) != _NONE]
    for size in alone:
        if not any(_fits(size, room) for room in free.values()):
            over = [i for i in (0, 1) if size[i] > largest[i]] or [i for i in (0, 1) if size[i]]
            short.extend((codes.REPLICA_TOO_LARGE, i, size[i], largest[i]) for i in over)
            break
    placed: dict[str, Room] = {}
    for replica in sorted(placing.replicas, key=lambda each: _size((each.cpu, each.memory), scale), reverse=True):
        if not short and not _spread(replica, free, placed, scale):
            # Each fits by itself, and all would in sum, but not side by side: what is left is in pieces.
            short = [(codes.POOL_FULL, i, asked[i], _largest(free, i)) for i in (0, 1) if asked[i]]
    if not short:
        return Placed(tuple((name, *room) for name, room in sorted(placed.items())))
    capacity = _plus_all(node.capacity or _NONE for node in eligible)
    mine = _plus_all(own.get(node.name, _NONE) for node in eligible)
    taken = _plus_all(node.allocated for node in eligible)
    others = (taken[0] - mine[0], taken[1] - mine[1])
    return Placed(
        (),
        tuple(
            Shortfall(code, "", placing.pool, _DIMENSIONS[i], capacity[i], others[i], wanted, largest, len(eligible))
            for code, i, wanted, largest in short
        ),
    )


def _largest(free: Mapping[str, Room], dimension: int) -> int:
    return max((room[dimension] for room in free.values()), default=0)


def _spread(replica: Replica, free: dict[str, Room], placed: dict[str, Room], scale: Room) -> bool:
    """Place every replica of one service, each on the node with most free; False when one fits nowhere.

    A node that one of them does not fit on is out for all, since they are alike and room only shrinks.
    """
    size = (replica.cpu, replica.memory)
    if size == _NONE:
        return True
    heap = [(-_least(room, scale), name) for name, room in free.items() if _fits(size, room)]
    heapq.heapify(heap)
    for _ in range(replica.count):
        if not heap:
            return False
        _, name = heapq.heappop(heap)
        free[name] = (free[name][0] - size[0], free[name][1] - size[1])
        placed[name] = _plus(placed.get(name, _NONE), size)
        if _fits(size, free[name]):
            heapq.heappush(heap, (-_least(free[name], scale), name))
    return True


def _free(node: Node, own: Room) -> Room:
    capacity = node.capacity or _NONE
    return (
        max(own[0], capacity[0] - node.allocated[0] + own[0]),
        max(own[1], capacity[1] - node.allocated[1] + own[1]),
    )


def _size(room: Room, scale: Room) -> int:
    """Compare cpu with memory by their shares of what there is, in whole numbers."""
    return max(room[0] * scale[1], room[1] * scale[0])


def _least(room: Room, scale: Room) -> int:
    return min(room[0] * scale[1], room[1] * scale[0])


def _fits(size: Room, room: Room) -> bool:
    return size[0] <= room[0] and size[1] <= room[1]


def _sum(replicas: Iterable[Replica]) -> Room:
    cpu = memory = 0
    for replica in replicas:
        cpu += replica.count * replica.cpu
        memory += replica.count * replica.memory
    return (cpu, memory)


def _by_node(contents: Iterable[Content]) -> Mapping[str, Room]:
    found: dict[str, Room] = {}
    for content in contents:
        for node, cpu, memory in content.nodes:
            found[node] = _plus(found.get(node, _NONE), (cpu, memory))
    return found


def _plus(a: Room, b: Room) -> Room:
    return (a[0] + b[0], a[1] + b[1])


def _plus_all(rooms: Iterable[Room]) -> Room:
    total = _NONE
    for room in rooms:
        total = _plus(total, room)
    return total


def _larger(a: Room, b: Room) -> Room:
    return (max(a[0], b[0]), max(a[1], b[1]))
