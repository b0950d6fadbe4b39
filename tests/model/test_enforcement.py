"""Enforcement as a whole against an independent model: any order, duplicates, expiry, restarts, two processes.

Deployments replace and surge, lie on nodes, wait for room; disks are measured, nodes report, limits and plans change.

After every step: what is stored is what the model says; usage is what charges and holds add up to, and what replaying
the changes from zero gives; and what was told before, told again to another process, changes nothing.
"""

import copy
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import asyncpg
from hypothesis import HealthCheck, note, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from tests.model.conftest import SEED
from tests.model.model import ADDED, GAUGES, PLACES, TENANT, Body, Model, Node, Place, Verdict
from tests.model.pure import Pure
from tests.model.stored import Stored
from tests.model.system import Rows, System, Told, Wish, answer, expected, replayed

from plimsoll_devkit.stack.private import LoopThread

DEPLOYMENTS = ("d1", "d2", "d3", "d4", "d5")
NOWHERE = dict.fromkeys(GAUGES, (0, 0))
LIMITED = ("cpu", "memory", "disk", "stacks", "environments", "apps", "vapps")

KINDS = ("reserve",) * 7 + ("commit",) * 4 + ("instead", "instead", "check", "check", "release", "release", "adjust")
RARE = ("run", "run", "gone", "gone", "shadow", "again", "again", "other body", "too old")
GROWN = ("place", "place", "replace", "replace", "surge", "wait", "wait", "wait", "wait on a node")
NODES = ("n1", "n2", "n3")


@dataclass(frozen=True)
class Shape:
    """A request or fact before it has ids: what it names it finds by counting."""

    kind: str
    deployment: str
    place: Place
    app: str
    amounts: tuple[int, int, int, int]
    number: int

    def body(self) -> Body:
        environment, stack = self.place
        found: Body = {"deployment": self.deployment}
        found |= {"environment": environment} if environment else {}
        found |= {"stack": stack} if stack else {}
        return found | ({"app": self.app} if self.app else {})

    def footprint(self) -> Body:
        return dict(zip(ADDED, self.amounts, strict=True))


small = st.integers(0, 5)
shapes = st.builds(
    Shape,
    st.sampled_from(KINDS + RARE + GROWN),
    st.sampled_from(DEPLOYMENTS),
    st.sampled_from(PLACES),
    st.sampled_from(("", "a1", "a2")),
    st.tuples(small, small, small, st.integers(0, 2)),
    st.integers(0, 9),
)
processes = st.integers(0, 1)
values = st.none() | st.integers(0, 12)


class Enforcement(RuleBasedStateMachine):
    """One tenant and whatever may happen to it."""

    make: ClassVar[Any]

    def __init__(self) -> None:
        super().__init__()
        note(f"PLIMSOLL_MODEL_SEED={SEED}")
        self.system: System = self.make()
        self.model = Model(nodes={name: Node() for name in NODES})
        self.ids = itertools.count(1)
        self.sent: list[Body] = []
        self.facts: list[Body] = []
        self.default_pending = False
        self.seq = 0

    @initialize(
        table=st.dictionaries(
            st.sampled_from(PLACES), st.dictionaries(st.sampled_from(ADDED), st.integers(0, 12)), max_size=3
        )
    )
    def begin_with_limits(self, table: dict[Place, dict[str, int]]) -> None:
        for place, limits in table.items():
            wishes = {name: (value, "enforce") for name, value in limits.items()}
            self.set_limits(place, wishes or {"cpu": None}, 0, force=False)

    @rule(asked=st.lists(shapes, min_size=2, max_size=8), process=processes)
    def requests(self, asked: list[Shape], process: int) -> None:
        self.batch(asked, [], process, lost=False)

    @rule(
        asked=st.lists(shapes, min_size=1, max_size=4),
        told=st.lists(shapes, max_size=4),
        process=processes,
        lost=st.sampled_from((False,) * 9 + (True,)),
    )
    def batch(self, asked: list[Shape], told: list[Shape], process: int, *, lost: bool) -> None:
        """Requests, then facts, in one transaction, which may be lost before it commits."""
        bodies: list[Body] = []
        for shape in asked:
            bodies.append(self.request(shape, bodies))
            if shape.kind == "run":  # what a flow does, faster than the enforcer's batches
                bodies.append(self.head("commit") | {"hold": bodies[-1]["request_id"]})
        facts = [self.fact(shape) for shape in told]
        if lost:
            self.system.batch(bodies, facts, process, lost=True)
        else:
            self.tell(bodies, facts, process)
            self.sent += bodies
            self.facts += facts
        self.compare(1 - process)

    @rule(told=st.lists(shapes, min_size=1, max_size=5), process=processes)
    def deltas(self, told: list[Shape], process: int) -> None:
        facts = [self.fact(shape) for shape in told]
        self.tell([], facts, process)
        self.facts += facts
        self.compare(1 - process)

    @rule(versions=st.lists(st.tuples(st.integers(1, 6), st.integers(0, 7)), min_size=1, max_size=3), process=processes)
    def entitle(self, versions: list[tuple[int, int]], process: int) -> None:
        """Snapshots in any order; one number in eight gives an equal version another body."""
        snapshots = [self.snapshot(version, version if other else version + 1) for version, other in versions]
        told = self.system.entitle(snapshots, process)
        assert told.facts == [self.model.entitle(one, told.now) for one in snapshots]
        self.hear(told, self.model.wake(told.now) if "applied" in told.facts else [])
        self.compare(1 - process)

    @rule(
        place=st.sampled_from(PLACES),
        bytes_=st.integers(0, 9),
        order=st.tuples(st.integers(1, 3), st.integers(1, 4)),
        complete=st.booleans(),
        process=processes,
    )
    def measure(self, place: Place, bytes_: int, order: tuple[int, int], process: int, *, complete: bool) -> None:
        told = self.system.measure(place, bytes_, order, process, complete=complete)
        became = self.model.measure(place, bytes_, order, told.now, complete=complete)
        assert [one.replace("repeated", "stale") for one in told.facts] == [became]
        self.hear(told, self.model.wake(told.now))
        self.compare(1 - process)

    @rule(
        node=st.sampled_from(NODES),
        room=st.none() | st.tuples(st.integers(0, 12), st.integers(0, 12)),
        pool=st.sampled_from("ppq"),
        version=st.integers(1, 9),
        schedulable=st.sampled_from((True, True, True, False)),
        process=processes,
    )
    def report(
        self, node: str, room: tuple[int, int] | None, pool: str, version: int, process: int, *, schedulable: bool
    ) -> None:
        """A node tells what it can take, in any order of versions."""
        capacity = {"cpu": room[0], "memory": room[1]} if room is not None else None
        body = {"node": node, "version": version, "pool": pool, "capacity": capacity, "schedulable": schedulable}
        self.system.report(body, process)
        self.model.report(body)
        self.compare(1 - process)

    @rule(
        place=st.sampled_from(PLACES),
        wanted=st.dictionaries(st.sampled_from(LIMITED), st.just("unset") | values, min_size=1, max_size=3),
        mode=st.sampled_from(("enforce",) * 4 + ("shadow",)),
        force=st.booleans(),
        process=processes,
    )
    def limit(self, place: Place, wanted: dict[str, int | str | None], mode: str, process: int, *, force: bool) -> None:
        off = {"stacks": bool(place[1]), "environments": bool(place[0])}
        wishes = {
            name: None if value == "unset" else (value, mode) for name, value in wanted.items() if not off.get(name)
        }
        if wishes:
            self.set_limits(place, wishes, process, force=force)  # type: ignore[arg-type]  # "unset" is gone
            self.compare(1 - process)

    def set_limits(self, place: Place, wishes: Mapping[str, Wish], process: int, *, force: bool) -> None:
        now = self.system.relimit(place, wishes, process, force=force)
        trial = copy.deepcopy(self.model)
        below = trial.relimit(place, wishes, now or self.system.now())
        assert (now is None) is (below and not force)
        if now is not None:
            self.model = trial

    @rule(name=st.sampled_from(LIMITED), value=values)
    def default(self, name: str, value: int | None) -> None:
        self.system.set_default(name, value)
        self.model.defaults[name] = value
        self.default_pending = True

    @rule(seconds=st.sampled_from((1, 160, 301, 601)), process=processes)
    def wait(self, seconds: int, process: int) -> None:
        self.system.advance(seconds)
        self.look(process)

    def look(self, process: int) -> None:
        """What the sweep does about those who wait."""
        if self.model.waiters:
            told = self.system.look(process)
            self.hear(told, self.model.wake(told.now))

    @rule(process=processes)
    def sweep(self, process: int) -> None:
        self.model.expire(self.system.sweep(process))
        self.default_pending = False
        self.compare(1 - process)

    @rule(process=processes)
    def restart(self, process: int) -> None:
        self.system.restart(process)

    def request(self, shape: Shape, before: list[Body]) -> Body:
        """Make the body of a request, which may name what this batch or an earlier one asked for."""
        known = self.sent + before
        reserves = [body for body in known if body["verb"] == "reserve"]
        if shape.kind in ("again", "other body") and known:
            body = known[-1 - shape.number % len(known)]
            if shape.kind == "again":
                return body
            return (
                self.head("adjust", body["request_id"]) | shape.body() | {"footprint": shape.footprint(), "revision": 7}
            )
        if shape.kind in ("commit", "release"):
            hold = reserves[-1 - shape.number % len(reserves)]["request_id"] if reserves else "nobody"
            head = self.head(shape.kind) | {"hold": hold}
            return head | (self.settles(shape) if shape.kind == "commit" else {})
        if shape.kind in ("adjust", "gone"):
            revision = {"revision": shape.number} if shape.number % 2 else {}
            footprint = shape.footprint() if shape.kind == "adjust" else None
            nodes = {"nodes": {NODES[2]: {"cpu": 1}}} if shape.number % 4 == 2 else {}
            return self.head("adjust") | shape.body() | {"footprint": footprint} | revision | nodes
        verb = "check" if shape.kind == "check" else "reserve"
        body = self.head(verb) | shape.body() | {"footprint": shape.footprint()}
        if shape.kind == "too old":
            body["issued_at"] = (self.system.now() - timedelta(hours=24, seconds=1)).isoformat()
        if shape.kind == "shadow":
            body["mode"] = "shadow"
        if verb == "reserve":
            body["ttl_seconds"] = 300 if shape.number % 2 else 3600
        if shape.kind == "instead":
            mine = [one["request_id"] for one in reserves if one["deployment"] == shape.deployment]
            body |= {"supersedes": mine[-1]} if mine else {}
        return body | self.grown(shape)

    def grown(self, shape: Shape) -> Body:
        """What else a reserve may say."""
        body: Body = {}
        others = [name for name in DEPLOYMENTS if name != shape.deployment]
        if shape.kind in ("replace", "surge"):
            body |= {"replaces": others[shape.number % 4 :][:2], "surge": shape.kind == "surge"}
        if shape.kind.startswith("wait"):
            body |= {"wait_seconds": 300}
        if shape.kind in ("place", "wait on a node") or (shape.kind in ("replace", "surge") and shape.number % 3 == 0):
            body |= {"placement": {"pool": "p"} if shape.number % 2 else {"node": NODES[shape.number // 2 % 2]}}
        return body

    def settles(self, shape: Shape) -> Body:
        """What else a commit may say."""
        body: Body = {"revision": shape.number} if shape.number % 3 == 0 else {}
        body |= {"nodes": {NODES[0]: {"cpu": shape.number}, NODES[1]: {"memory": 1}}} if shape.number % 4 == 1 else {}
        return body | ({"replaced": {shape.deployment: shape.number}} if shape.number % 5 == 0 else {})

    def head(self, verb: str, request_id: str | None = None) -> Body:
        at = (self.system.now() - timedelta(seconds=1)).isoformat()
        name = request_id or f"r{next(self.ids)}"
        return {"verb": verb, "request_id": name, "issued_at": at, "tenant": self.system.tenant}

    def fact(self, shape: Shape) -> Body:
        after = shape.footprint() if shape.number % 4 else None
        return {"tenant": self.system.tenant, "revision": shape.number, "after": after} | shape.body()

    def snapshot(self, version: int, content: int) -> Body:
        return {
            "tenant": self.system.tenant,
            "entitlement_version": version,
            "plan": f"p{content}",
            "limits": {name: value for name, value in (("cpu", 6 + content), ("vapps", content)) if content % 3},
            "features": {"deployments": content != 4},
            "quota_blocked": ["disk"] if content % 2 else [],
            "ended": content == 5,
        }

    def tell(self, bodies: list[Body], facts: list[Body], process: int) -> None:
        """Let the system and the model have the same, and compare every answer."""
        told = self.system.batch(bodies, facts, process)
        for body, reply in zip(bodies, told.replies, strict=True):
            says = self.model.ask(body, told.now)
            if says is None:
                assert (reply.allowed, reply.code) == (False, None), "it waits"
                continue
            assert answer(reply) == expected(says), body
            if says["allowed"] and not says["repeated"] and reply.verb == "reserve" and not reply.would_deny:
                self.is_within_limits(body)
        woken = self.model.wake(told.now)
        assert list(told.facts) == [self.model.fact(body, told.now) for body in facts]
        self.hear(told, woken + self.model.wake(told.now))

    def hear(self, told: Told, woken: list[Verdict]) -> None:
        """Compare what those were told who waited."""
        assert [reply.request_id for reply in told.woken] == [says["request_id"] for says in woken]
        for reply, says in zip(told.woken, woken, strict=True):
            assert answer(reply) == expected(says)
            if says["allowed"]:
                self.is_within_limits(self.model.answers[says["request_id"]][0])

    def is_within_limits(self, body: Body) -> None:
        """DESIGN 9.1: what this hold has raised is not above an enforced limit."""
        if "supersedes" in body:
            return  # what it has raised is less than what it holds
        mine = self.model.holds[body["request_id"]]
        others = [hold for hold in self.model.opened() if hold is not mine]
        for name, node in self.model.nodes.items():
            there = zip(
                self.model.allocated(name, others), self.model.allocated(name), node.capacity or (), strict=False
            )
            assert all(now <= most for before, now, most in there if now > before), name
        for place in PLACES:
            without, now = self.model.figures(place, others), self.model.figures(place)
            for gauge in GAUGES:
                top, mode = self.model.top(place, gauge), self.model.limit(place, gauge[0])[2]
                if top is not None and mode == "enforce" and now[gauge][1] > without[gauge][1]:
                    assert now[gauge][1] <= top, (place, gauge)

    def compare(self, other: int) -> None:
        """What is stored is what the model has; told again, everything stays as it is (DESIGN 9.2)."""
        self.look(other)
        self.agree(self.system.rows())
        kept = copy.deepcopy(self.model)
        kept.expire(self.system.now())
        self.tell(self.sent[-10:], self.facts[-10:], other)
        assert self.model.charges == kept.charges
        assert self.model.holds == kept.holds
        assert self.model.waiters == kept.waiters
        self.agree(self.system.rows())

    def agree(self, rows: Rows) -> None:
        assert rows.charges == self.model.charges
        assert rows.holds == {name: (hold.deployment, hold.state) for name, hold in self.model.holds.items()}
        opened = [member for hold in self.model.opened() for member in hold.members]
        assert len(opened) == len(set(opened)), "two open holds of one deployment"
        assert {name: rows.nodes.get(name, (0, 0)) for name in NODES} == {n: self.model.allocated(n) for n in NODES}
        assert rows.measured == {place: found[1] for place, found in self.model.measured.items()}
        assert rows.waiters == [waiter.body["request_id"] for waiter in self.model.waiters]
        figures = {place: self.model.figures(place) for place in PLACES}
        assert {place: rows.usage.get(place, NOWHERE) for place in PLACES} == figures
        assert rows.usage.keys() <= figures.keys()
        assert {place: replayed(rows.changes).figures(place) for place in PLACES} == figures
        numbers = [change["seq"] for change in rows.changes]
        assert numbers == sorted(set(numbers)), "two changes have one number"
        assert rows.seq >= max(self.seq, *numbers, 0)
        if rows.seq > self.seq:
            self.default_pending = False
        self.seq = rows.seq
        # A changed default is told when the tenant next moves, or is swept.
        judged = [place for place in PLACES if place != TENANT or not self.default_pending]
        assert {key for key in rows.over if key[0] in judged} == self.model.reached(judged)

    def teardown(self) -> None:
        self.system.close()


def test_the_pure_functions_keep_to_the_model() -> None:
    class OverPureFunctions(Enforcement):
        make = Pure

    run_state_machine_as_test(seed(SEED)(OverPureFunctions), settings=settings())


def test_the_storage_keeps_to_the_model(connections: asyncpg.Pool, stack_thread: LoopThread) -> None:
    numbers = itertools.count(1)

    class OverStorage(Enforcement):
        make = staticmethod(lambda: Stored(f"t{next(numbers)}", connections, stack_thread.run))

    fewer = settings(max_examples=max(1, settings().max_examples // 3), suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(seed(SEED)(OverStorage), settings=fewer)
