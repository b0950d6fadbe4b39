"""What should enforcement come to? DESIGN 5 written down a second time, as plainly as it goes.

Messages are read as they travel, as dicts; figures are added up anew from charges and holds whenever they are needed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

Body = dict[str, Any]
Place = tuple[str, str]
Gauge = tuple[str, str | None]
Verdict = dict[str, Any]
Room = tuple[int, int]

TENANT: Place = ("", "")
PLACES: tuple[Place, ...] = (TENANT, ("e1", ""), ("e2", ""), ("e1", "s1"), ("e1", "s2"), ("e2", "s1"))
ADDED = ("cpu", "memory", "disk", "vapps")
GAUGES: tuple[Gauge, ...] = (
    ("cpu", "reserved"),
    ("cpu", "burst"),
    ("memory", "reserved"),
    ("memory", "burst"),
    ("disk", None),
    ("stacks", None),
    ("environments", None),
    ("apps", None),
    ("vapps", None),
)
CODES = {
    "cpu": "X403001CPUEXC",
    "memory": "X403002MEMEXC",
    "disk": "X403003DSKEXC",
    "stacks": "X403004STKEXC",
    "environments": "X403005ENVEXC",
    "apps": "X403006APPEXC",
    "vapps": "X403007VAPEXC",
}
GATES = ("deployments", "quota_blocked", "plan_limits")
ON_NODES = ("cpu", "memory")


def place_of(body: Body) -> Place:
    return (body.get("environment") or "", body.get("stack") or "")


def what_of(body: Body, amounts: Body) -> Body:
    """What a deployment is: place, app, amounts."""
    return {"place": place_of(body), "app": body.get("app") or ""} | {name: amounts.get(name, 0) for name in ADDED}


def checked(place: Place) -> list[Place]:
    """The places whose limits are checked, most specific first."""
    environment, stack = place
    return [place] * bool(stack) + [(environment, "")] * bool(environment) + [TENANT]


KEPT_OUT = {"conflict": "X409005REVCON", "too much on nodes": "X422005NODSUM"}


@dataclass
class Hold:
    deployment: str
    what: Body
    until: datetime
    state: str = "open"
    first: tuple[int, str] | None = None
    replaces: tuple[str, ...] = ()
    surge: bool = False
    there: dict[str, Room] = field(default_factory=dict)

    @property
    def members(self) -> set[str]:
        return {self.deployment, *self.replaces}

    @property
    def instead_of(self) -> set[str]:
        """Whose amounts its own takes the place of while it is open."""
        return {self.deployment} if self.surge else self.members


@dataclass
class Waiter:
    body: Body
    since: datetime
    until: datetime
    lacks: set[object]


@dataclass
class Node:
    pool: str = ""
    capacity: Room | None = None
    schedulable: bool = True
    version: int = 0


@dataclass
class Model:
    """One tenant, and nodes that it has for itself."""

    charges: dict[str, tuple[int, Body | None]] = field(default_factory=dict)
    there: dict[str, dict[str, Room]] = field(default_factory=dict)
    measured: dict[Place, tuple[tuple[int, int], int]] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    waiters: list[Waiter] = field(default_factory=list)
    holds: dict[str, Hold] = field(default_factory=dict)
    limits: dict[Place, dict[str, tuple[int | None, str]]] = field(default_factory=dict)
    defaults: dict[str, int | None] = field(default_factory=dict)
    plan: Body | None = None
    answers: dict[str, tuple[Body, Verdict]] = field(default_factory=dict)
    released: list[Verdict] = field(default_factory=list)

    def expire(self, now: datetime) -> None:
        for hold in self.holds.values():
            if hold.state == "open" and hold.until <= now:
                hold.state = "expired"

    def opened(self) -> list[Hold]:
        return [hold for hold in self.holds.values() if hold.state == "open"]

    def figures(self, place: Place, opened: list[Hold] | None = None) -> dict[Gauge, tuple[int, int]]:
        """Used and used + held, by gauge, with these holds or the open ones."""
        holds = self.opened() if opened is None else opened
        old = {d: w for d, (_, w) in self.charges.items() if w is not None and _inside(place, w)}
        new = [hold.what for hold in holds if _inside(place, hold.what)]
        found: dict[Gauge, tuple[int, int]] = {}
        for gauge in GAUGES:
            name = gauge[0]
            if name in ADDED:
                amounts = {d: w[name] for d, w in old.items()}
                held = sum(_adds(hold, amounts, hold.what[name]) for hold in holds if _inside(place, hold.what))
                used = self.disk(place) if name == "disk" else sum(amounts.values())
                found[gauge] = (used, used + held)
            else:
                members = [{_member(name, w) for w in some} - {None} for some in (old.values(), new)]
                found[gauge] = (len(members[0]), len(members[0] | members[1]))
        return found

    def disk(self, place: Place) -> int:
        """The larger of what was measured here and what lies in here."""
        lying: int = sum(w["disk"] for _, w in self.charges.values() if w is not None and w["place"] == place)
        below = sum(self.disk(each) for each in PLACES if place in checked(each)[1:2])
        return max(self.measured.get(place, ((0, 0), 0))[1], lying + below)

    def allocated(self, node: str, opened: list[Hold] | None = None, but: frozenset[str] = frozenset()) -> Room:
        """What charges, but those, and these holds or the open ones have on a node."""
        rooms = []
        for i in (0, 1):
            settled = {d: there[node][i] for d, there in self.there.items() if node in there and d not in but}
            holds = self.opened() if opened is None else opened
            adds = sum(_adds(h, settled, h.there[node][i]) for h in holds if node in h.there)
            rooms.append(sum(settled.values()) + adds)
        return (rooms[0], rooms[1])

    def limit(self, place: Place, name: str) -> tuple[int | None, str, str]:
        """Value (None: not limited), source and mode of the limit that holds."""
        if name in self.limits.get(place, {}):
            value, mode = self.limits[place][name]
            return value, "override", mode
        if place == TENANT and self.plan is not None and name in self.plan["limits"]:
            value = self.plan["limits"][name]
            return (None if value == "unlimited" else value), "plan", "enforce"
        if place == TENANT and name in self.defaults:
            return self.defaults[name], "default", "enforce"
        return None, "none", "enforce"

    def top(self, place: Place, gauge: Gauge) -> int | None:
        value = self.limit(place, gauge[0])[0]
        return value * 3 // 2 if value is not None and gauge[1] == "burst" else value

    def over(self, places: list[Place]) -> set[tuple[Place, Gauge]]:
        return {(place, gauge) for place, gauge, mark in self.reached(places) if mark == "over"}

    def reached(self, places: list[Place]) -> set[tuple[Place, Gauge, str]]:
        """Every limit that is exceeded, and every mark of one that is reached: 80 %, and two of vapps."""
        found = set()
        for place in places:
            for gauge, (_, total) in self.figures(place).items():
                top = self.top(place, gauge)
                if top is not None and total > 0:
                    marks = {"over": total > top, "80%": 5 * total >= 4 * top}
                    marks["vapps=2"] = gauge[0] == "vapps" and total >= 2
                    found |= {(place, gauge, mark) for mark, is_reached in marks.items() if is_reached}
        return found

    def ask(self, body: Body, now: datetime) -> Verdict | None:
        """The answer, or None where it is waited for."""
        self.expire(now)
        age = now - datetime.fromisoformat(body["issued_at"])
        if age > timedelta(hours=24):
            return verdict(code="X410001REQOLD")
        waiter = next((one for one in self.waiters if one.body["request_id"] == body["request_id"]), None)
        if waiter is not None and body["verb"] != "check":
            return None if waiter.body == body else verdict(code="X409001IDMMIS")
        known = self.answers.get(body["request_id"]) if body["verb"] != "check" else None
        if known is not None:
            if known[0] != body:
                return verdict(code="X409001IDMMIS")
            hold = body["request_id"] if body["verb"] == "reserve" else body.get("hold", "")
            return known[1] | {"repeated": True, "hold": self.shown(hold) or known[1]["hold"]}
        told: Verdict | None = getattr(self, body["verb"])(body, now)
        if body["verb"] != "check" and told is not None:
            self.answers[body["request_id"]] = (body, told)
        return told

    def kept(self, now: datetime, before: Waiter | None = None) -> set[object]:
        """What is kept for those who have waited for half of their time, and came before this one."""
        ahead = self.waiters[: self.waiters.index(before)] if before is not None else self.waiters
        return {lack for one in ahead if now - one.since >= (one.until - one.since) / 2 for lack in one.lacks}

    def wake(self, now: datetime) -> list[Verdict]:
        """Try everybody who waits, in order."""
        self.expire(now)
        woken = [told for one in list(self.waiters) if (told := self.try_again(one, now)) is not None]
        released, self.released = self.released, []
        return released + woken

    def try_again(self, waiter: Waiter, now: datetime) -> Verdict | None:
        told = self.growth(waiter.body, self.kept(now, waiter))
        if not told["allowed"] and waiter.until > now and _may_wait(waiter.body, told):
            late = now - waiter.since >= (waiter.until - waiter.since) / 2
            waiter.lacks = told["lacks"] | waiter.lacks if late else told["lacks"] or waiter.lacks
            return None
        self.waiters.remove(waiter)
        return self.answered(waiter.body, told, now)

    def answered(self, body: Body, told: Verdict, now: datetime) -> Verdict:
        """Open the hold where it is a yes, and remember the answer."""
        if told["allowed"]:
            for hold in self.opened():
                if hold.members & {body["deployment"], *body.get("replaces", ())}:
                    hold.state = "released"
            self.holds[body["request_id"]] = replace(
                _hold_of(body), until=now + timedelta(seconds=body.get("ttl_seconds", 600)), there=told["there"]
            )
            told = told | {"hold": (body["request_id"], "open")}
        told = told | {"request_id": body["request_id"]}
        self.answers[body["request_id"]] = (body, told)
        return told

    def shown(self, hold: str) -> tuple[str, str] | None:
        return (hold, self.holds[hold].state) if hold in self.holds else None

    def check(self, body: Body, now: datetime) -> Verdict:
        return self.growth(body, self.kept(now))

    def growth(self, body: Body, kept: set[object]) -> Verdict:
        """Gates, limits, capacity, and who has waited longer."""
        new = _hold_of(body)
        bound = {name for name, h in self.holds.items() if h.state == "open" and h.members & new.members}
        if bound - {body.get("supersedes")}:
            return verdict(code="X409002HLDOPN")
        others = [h for name, h in self.holds.items() if h.state == "open" and name not in bound]
        capacity, new.there = self.place(body, new, others)
        after = [*others, new]
        rises = {p: {g: self.figures(p, after)[g][1] - self.figures(p)[g][1] for g in GAUGES} for p in PLACES}
        grown = {(p, gauge) for p, rise in rises.items() for gauge, by in rise.items() if by > 0}
        for node in self.nodes:
            if any(b > a for a, b in zip(self.allocated(node), self.allocated(node, after), strict=True)):
                grown |= {("node", node), ("pool", self.nodes[node].pool)}  # type: ignore[arg-type]  # both are taken
        denied, fail_open = self.gates({gauge[0] for p, gauge in grown if isinstance(p, tuple)})
        violations = [v for place in checked(new.what["place"]) for v in self.violations(place, rises[place])]
        enforced = [CODES[v["dimension"]] for v in violations if not v["shadow"]]
        codes = [code for _, code in denied] + enforced + sorted(short["code"] for short in capacity)
        code = next(iter(codes), "X403014WTRAHD" if kept & grown else None)
        refused = code is not None and body.get("mode", "enforce") == "enforce"
        lacks = {(v["place"], (v["dimension"], v["basis"])) for v in violations if not v["shadow"]}
        return verdict(
            code=code if refused else None,
            would_deny=not refused and (code is not None or bool(violations)),
            violations=violations,
            fail_open=fail_open,
            denied_gates=[gate for gate, _ in denied],
            capacity=capacity,
            lacks=lacks | {("node", s["node"]) if s["node"] else ("pool", s["pool"]) for s in capacity},
            there=new.there,
        )

    def place(self, body: Body, new: Hold, others: list[Hold]) -> tuple[list[Body], dict[str, Room]]:
        """Room for the one replica that plain amounts are: what is missing, or where it goes."""
        where, asked = body.get("placement"), (new.what["cpu"], new.what["memory"])
        if where is None:
            return [], self.there.get(new.deployment, {}) if asked != (0, 0) else {}
        name, pool = where.get("node"), where.get("pool")
        named = {name: self.nodes.get(name, Node())} if name else self.nodes
        known = {n: node for n, node in named.items() if node.capacity is not None and (name or node.pool == pool)}
        if not known:
            return [], {name: asked} if name and asked != (0, 0) else {}
        eligible = {n: node.capacity or (0, 0) for n, node in known.items() if name or node.schedulable}
        taken = {n: self.allocated(n, others, frozenset(new.instead_of)) for n in eligible}
        own = {n: [a - b for a, b in zip(self.allocated(n), taken[n], strict=True)] for n in eligible}
        left = {n: [max(0, c - t) for c, t in zip(cap, taken[n], strict=True)] for n, cap in eligible.items()}
        if name and not self.nodes[name].schedulable:
            left[name] = own[name]
        free = {n: [max(pair) for pair in zip(left[n], own[n], strict=True)] for n in eligible}
        total, largest = ([fun([f[i] for f in free.values()] or [0]) for i in (0, 1)] for fun in (sum, max))
        fits = [n for n in sorted(eligible) if all(a <= f for a, f in zip(asked, free[n], strict=True))]
        if asked == (0, 0):
            return [], {}
        if fits:
            return [], {max(fits, key=lambda n: min(free[n][i] * max(1, total[1 - i]) for i in (0, 1))): asked}
        over = [i for i in (0, 1) if asked[i] > largest[i]]
        short = [("X403012SWMPOL", i) for i in (0, 1) if asked[i] > total[i]]
        short += [("X403013SWMREP", i) for i in over or [i for i in (0, 1) if asked[i]]]
        if name:
            short, largest = [(("X403010NODCPU", "X403011NODMEM")[i], i) for i in over], left[name]
        return [
            {"code": code, "node": name, "pool": pool, "dimension": ON_NODES[i], "asked": asked[i]}
            | {"capacity": sum(cap[i] for cap in eligible.values()), "allocated": sum(t[i] for t in taken.values())}
            | {"largest_free": largest[i], "eligible": len(eligible)}
            for code, i in short
        ], {}

    def gates(self, grows: set[str]) -> tuple[list[tuple[str, str]], list[str]]:
        if not grows:
            return [], []
        if self.plan is None:
            return [], list(GATES)
        denied = []
        if self.plan["ended"] or not self.plan["features"]["deployments"]:
            denied.append(("deployments", "X403021ENTEND" if self.plan["ended"] else "X403020DEPFEA"))
        if grows & set(self.plan["quota_blocked"]):
            denied.append(("quota_blocked", "X402001QTABLK"))
        return denied, []

    def violations(self, place: Place, rise: dict[Gauge, int]) -> list[Body]:
        found = []
        for gauge, (used, total) in self.figures(place).items():
            top = self.top(place, gauge)
            if top is not None and rise[gauge] > 0 and total + rise[gauge] > top:
                _, source, mode = self.limit(place, gauge[0])
                figures = {"used": used, "held": total - used, "asked": rise[gauge], "headroom": top - total}
                known: Body = {
                    "place": place,
                    "dimension": gauge[0],
                    "basis": gauge[1],
                    "limit": top,
                    "limit_source": source,
                }
                fits = {"would_fit": max(0, top - total), "shadow": mode == "shadow"}
                found.append(known | figures | fits)
        return found

    def reserve(self, body: Body, now: datetime) -> Verdict | None:
        told = self.check(body, now)
        if not told["allowed"] and _may_wait(body, told):
            until = now + timedelta(seconds=min(300, body["wait_seconds"]))
            self.waiters.append(Waiter(body, now, until, told["lacks"]))
            return None
        return self.answered(body, told, now)

    def commit(self, body: Body, _: datetime) -> Verdict:
        hold = self.holds.get(body["hold"])
        if hold is None or hold.state == "released":
            return verdict(code="X409003HLDCLO", hold=self.shown(body["hold"]), there=hold.there if hold else {})
        replaced = []
        if hold.state != "committed":
            said = "nodes" in body
            real = _there(body) if said else hold.there or None
            revision, outcome = self.settle(hold.deployment, body.get("revision"), hold.what, real, said=said)
            if outcome in KEPT_OUT:
                over = self.over_at(hold.deployment)
                code = KEPT_OUT[outcome]
                return verdict(code=code, hold=self.shown(body["hold"]), over_limit=over, there=hold.there)
            for name in hold.replaces:
                ended = self.settle(name, body.get("replaced", {}).get(name), None)
                replaced += [(name, *ended)] if ended[1] != "conflict" else []
            hold.state, hold.first = "committed", (revision, outcome)
        settled = (hold.deployment, *(hold.first or (0, "")))
        over = self.over_at(hold.deployment)
        told = verdict(hold=self.shown(body["hold"]), settled=settled, over_limit=over, replaced=replaced)
        return told | {"there": hold.there}

    def release(self, body: Body, _: datetime) -> Verdict:
        hold = self.holds.get(body["hold"])
        waiter = next((one for one in self.waiters if one.body["request_id"] == body["hold"]), None)
        if waiter is not None:
            self.waiters.remove(waiter)
            told = verdict(code="X409007WAIREL", request_id=body["hold"])
            self.answers[body["hold"]] = (waiter.body, told)
            self.released.append(told)
            return verdict()
        if hold is None:
            return verdict(code="X409003HLDCLO")
        if hold.state == "open":
            hold.state = "released"
        return verdict(hold=self.shown(body["hold"]), there=hold.there)

    def adjust(self, body: Body, _: datetime) -> Verdict:
        amounts, name = body["footprint"], body["deployment"]
        what = what_of(body, amounts) if amounts is not None else None
        revision, outcome = self.settle(
            name, body.get("revision"), what, _there(body) if "nodes" in body else None, said=True
        )
        if outcome in KEPT_OUT:
            return verdict(code=KEPT_OUT[outcome], over_limit=self.over_at(name))
        return verdict(settled=(name, revision, outcome), over_limit=self.over_at(name))

    def over_at(self, deployment: str) -> bool:
        what = self.charges.get(deployment, (0, None))[1]
        return what is not None and bool(self.over(checked(what["place"])))

    def settle(
        self,
        deployment: str,
        revision: int | None,
        what: Body | None,
        there: dict[str, Room] | None = None,
        *,
        said: bool = False,
    ) -> tuple[int, str]:
        """Where nothing is said of nodes it stays where it is, unless it reserves nothing any more."""
        present = self.charges.get(deployment)
        if revision is None:
            revision = present[0] + 1 if present is not None else 1
        if present is None or revision > present[0]:
            on_nodes = [sum(room[which] for room in (there or {}).values()) for which in (0, 1)]
            if said and what is not None and (on_nodes[0] > what["cpu"] or on_nodes[1] > what["memory"]):
                return revision, "too much on nodes"
            self.charges[deployment] = (revision, what)
            stays = what is not None and (what["cpu"], what["memory"]) != (0, 0)
            kept = self.there.get(deployment, {}) if stays else {}
            self.there[deployment] = {} if what is None else kept if there is None else there
            return revision, "settled"
        if revision < present[0]:
            return present[0], "stale"
        return revision, "unchanged" if present[1] == what else "conflict"

    def fact(self, body: Body, now: datetime) -> str:
        self.expire(now)
        what = what_of(body, body["after"]) if body["after"] is not None else None
        return self.settle(body["deployment"], body["revision"], what)[1]

    def measure(self, place: Place, bytes_: int, order: tuple[int, int], now: datetime, *, complete: bool) -> str:
        self.expire(now)
        known = self.measured.get(place)
        if known is not None and (order <= known[0] or (not complete and bytes_ < known[1])):
            return "stale"
        self.measured[place] = (order, bytes_)
        return "applied"

    def report(self, body: Body) -> None:
        if body["version"] > self.nodes[body["node"]].version:
            room = body["capacity"]
            capacity = (room["cpu"], room["memory"]) if room is not None else None
            self.nodes[body["node"]] = Node(body["pool"], capacity, body["schedulable"], body["version"])

    def entitle(self, body: Body, now: datetime) -> str:
        present = self.plan["entitlement_version"] if self.plan is not None else 0
        if body["entitlement_version"] > present:
            self.expire(now)
            self.plan = body
            return "applied"
        if body["entitlement_version"] < present:
            return "stale"
        return "repeated" if body == self.plan else "conflict"

    def relimit(self, place: Place, wanted: Mapping[str, tuple[int | None, str] | None], now: datetime) -> bool:
        """Change limits, and tell whether any is now below what is used and held."""
        self.expire(now)
        here = self.limits.setdefault(place, {})
        for name, limit in wanted.items():
            here.pop(name, None)
            if limit is not None:
                here[name] = limit
        return any(gauge[0] in wanted for _, gauge in self.over([place]))


def verdict(code: str | None = None, **more: Any) -> Verdict:
    """What a reply says, apart from words and moments."""
    told: Verdict = {
        "allowed": code is None,
        "code": code,
        "violations": [],
        "would_deny": False,
        "fail_open": [],
        "denied_gates": [],
        "hold": None,
        "settled": None,
        "over_limit": False,
        "repeated": False,
        "capacity": [],
        "replaced": [],
        "lacks": set(),
        "there": {},
    }
    return told | more


def _may_wait(body: Body, told: Verdict) -> bool:
    """Only room is waited for, and only by whoever would be refused."""
    final = told["code"] == "X409002HLDOPN" or told["denied_gates"]
    return bool(body.get("wait_seconds")) and body.get("mode", "enforce") == "enforce" and not final


def _hold_of(body: Body) -> Hold:
    what = what_of(body, body["footprint"])
    bound = (tuple(body.get("replaces", ())), body.get("surge", False))
    return Hold(body["deployment"], what, datetime.min.replace(tzinfo=UTC), "open", None, *bound)


def _there(body: Body) -> dict[str, Room]:
    return {node: (room.get("cpu", 0), room.get("memory", 0)) for node, room in body.get("nodes", {}).items()}


def _adds(hold: Hold, settled: Mapping[str, int], target: int) -> int:
    """What a hold adds: its target, beyond what it takes the place of."""
    return max(0, target - sum(settled.get(name, 0) for name in hold.instead_of))


def _inside(place: Place, what: Body) -> bool:
    return all(a in ("", b) for a, b in zip(place, what["place"], strict=True))


def _member(name: str, what: Body) -> object:
    environment, stack = what["place"]
    return {
        "stacks": what["place"] if stack else None,
        "environments": environment or None,
        "apps": what["app"] or None,
    }[name]
