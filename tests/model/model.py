"""What should enforcement come to? DESIGN 5 written down a second time, as plainly as it goes.

Messages are read as they travel, as dicts; figures are added up anew from charges and holds whenever they are needed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

Body = dict[str, Any]
Place = tuple[str, str]
Gauge = tuple[str, str | None]
Verdict = dict[str, Any]

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


def place_of(body: Body) -> Place:
    return (body.get("environment") or "", body.get("stack") or "")


def what_of(body: Body, amounts: Body) -> Body:
    """What a deployment is: place, app, amounts."""
    return {"place": place_of(body), "app": body.get("app") or ""} | {name: amounts.get(name, 0) for name in ADDED}


def checked(place: Place) -> list[Place]:
    """The places whose limits are checked, most specific first."""
    environment, stack = place
    return [place] * bool(stack) + [(environment, "")] * bool(environment) + [TENANT]


@dataclass
class Hold:
    deployment: str
    what: Body
    until: datetime
    state: str = "open"
    first: tuple[int, str] | None = None


@dataclass
class Model:
    """One tenant."""

    charges: dict[str, tuple[int, Body | None]] = field(default_factory=dict)
    holds: dict[str, Hold] = field(default_factory=dict)
    limits: dict[Place, dict[str, tuple[int | None, str]]] = field(default_factory=dict)
    defaults: dict[str, int | None] = field(default_factory=dict)
    plan: Body | None = None
    answers: dict[str, tuple[Body, Verdict]] = field(default_factory=dict)

    def expire(self, now: datetime) -> None:
        for hold in self.holds.values():
            if hold.state == "open" and hold.until <= now:
                hold.state = "expired"

    def wanted(self) -> dict[str, Body]:
        return {hold.deployment: hold.what for hold in self.holds.values() if hold.state == "open"}

    def figures(self, place: Place, wanted: dict[str, Body] | None = None) -> dict[Gauge, tuple[int, int]]:
        """Used and used + held, by gauge, with these targets or the open ones."""

        def inside(all_of: dict[str, Body]) -> dict[str, Body]:
            return {
                d: w for d, w in all_of.items() if all(a in ("", b) for a, b in zip(place, w["place"], strict=True))
            }

        old = inside({d: w for d, (_, w) in self.charges.items() if w is not None})
        new = inside(self.wanted() if wanted is None else wanted)
        found: dict[Gauge, tuple[int, int]] = {}
        for gauge in GAUGES:
            name = gauge[0]
            if name in ADDED:
                both = {
                    d: max(old.get(d, {}).get(name, 0), new.get(d, {}).get(name, 0)) for d in old.keys() | new.keys()
                }
                found[gauge] = (sum(w[name] for w in old.values()), sum(both.values()))
            else:
                members = [{_member(name, w) for w in some} - {None} for some in (old.values(), new.values())]
                found[gauge] = (len(members[0]), len(members[0] | members[1]))
        return found

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
        found = set()
        for place in places:
            for gauge, (_, total) in self.figures(place).items():
                top = self.top(place, gauge)
                if top is not None and total > top:
                    found.add((place, gauge))
        return found

    def ask(self, body: Body, now: datetime) -> Verdict:
        self.expire(now)
        age = now - datetime.fromisoformat(body["issued_at"])
        if age > timedelta(hours=24):
            return verdict(code="X410001REQOLD")
        known = self.answers.get(body["request_id"]) if body["verb"] != "check" else None
        if known is not None:
            if known[0] != body:
                return verdict(code="X409001IDMMIS")
            hold = body["request_id"] if body["verb"] == "reserve" else body.get("hold", "")
            return known[1] | {"repeated": True, "hold": self.shown(hold) or known[1]["hold"]}
        told: Verdict = getattr(self, body["verb"])(body, now)
        if body["verb"] != "check":
            self.answers[body["request_id"]] = (body, told)
        return told

    def shown(self, hold: str) -> tuple[str, str] | None:
        return (hold, self.holds[hold].state) if hold in self.holds else None

    def check(self, body: Body, _: datetime) -> Verdict:
        present = next(
            (name for name, h in self.holds.items() if (h.deployment, h.state) == (body["deployment"], "open")), None
        )
        if present is not None and present != body.get("supersedes"):
            return verdict(code="X409002HLDOPN")
        what = what_of(body, body["footprint"])
        target = self.wanted() | {body["deployment"]: what}
        everywhere = {p for w in [*self.wanted().values(), what] for p in checked(w["place"])}
        rises = {p: {g: self.figures(p, target)[g][1] - self.figures(p)[g][1] for g in GAUGES} for p in everywhere}
        grows = {gauge[0] for rise in rises.values() for gauge, by in rise.items() if by > 0}
        denied, fail_open = self.gates(grows)
        violations = [v for place in checked(what["place"]) for v in self.violations(place, rises[place])]
        enforced = [CODES[v["dimension"]] for v in violations if not v["shadow"]]
        code = next(iter([code for _, code in denied] + enforced), None)
        refused = code is not None and body.get("mode", "enforce") == "enforce"
        return verdict(
            code=code if refused else None,
            would_deny=not refused and bool(denied or violations),
            violations=violations,
            fail_open=fail_open,
            denied_gates=[gate for gate, _ in denied],
        )

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

    def reserve(self, body: Body, now: datetime) -> Verdict:
        told = self.check(body, now)
        if told["allowed"]:
            for hold in self.holds.values():
                if (hold.deployment, hold.state) == (body["deployment"], "open"):
                    hold.state = "released"
            until = now + timedelta(seconds=body.get("ttl_seconds", 600))
            what = what_of(body, body["footprint"])
            self.holds[body["request_id"]] = Hold(body["deployment"], what, until)
            told["hold"] = (body["request_id"], "open")
        return told

    def commit(self, body: Body, _: datetime) -> Verdict:
        hold = self.holds.get(body["hold"])
        if hold is None or hold.state == "released":
            return verdict(code="X409003HLDCLO", hold=self.shown(body["hold"]))
        if hold.state != "committed":
            revision, outcome = self.settle(hold.deployment, body.get("revision"), hold.what)
            if outcome == "conflict":
                over = self.over_at(hold.deployment)
                return verdict(code="X409005REVCON", hold=self.shown(body["hold"]), over_limit=over)
            hold.state, hold.first = "committed", (revision, outcome)
        settled = (hold.deployment, *(hold.first or (0, "")))
        return verdict(hold=self.shown(body["hold"]), settled=settled, over_limit=self.over_at(hold.deployment))

    def release(self, body: Body, _: datetime) -> Verdict:
        hold = self.holds.get(body["hold"])
        if hold is None:
            return verdict(code="X409003HLDCLO")
        if hold.state == "open":
            hold.state = "released"
        return verdict(hold=self.shown(body["hold"]))

    def adjust(self, body: Body, _: datetime) -> Verdict:
        amounts, name = body["footprint"], body["deployment"]
        what = what_of(body, amounts) if amounts is not None else None
        revision, outcome = self.settle(name, body.get("revision"), what)
        if outcome == "conflict":
            return verdict(code="X409005REVCON", over_limit=self.over_at(name))
        return verdict(settled=(name, revision, outcome), over_limit=self.over_at(name))

    def over_at(self, deployment: str) -> bool:
        what = self.charges[deployment][1]
        return what is not None and bool(self.over(checked(what["place"])))

    def settle(self, deployment: str, revision: int | None, what: Body | None) -> tuple[int, str]:
        present = self.charges.get(deployment)
        if revision is None:
            revision = present[0] + 1 if present is not None else 1
        if present is None or revision > present[0]:
            self.charges[deployment] = (revision, what)
            return revision, "settled"
        if revision < present[0]:
            return present[0], "stale"
        return revision, "unchanged" if present[1] == what else "conflict"

    def fact(self, body: Body, now: datetime) -> str:
        self.expire(now)
        what = what_of(body, body["after"]) if body["after"] is not None else None
        return self.settle(body["deployment"], body["revision"], what)[1]

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
    }
    return told | more


def _member(name: str, what: Body) -> object:
    environment, stack = what["place"]
    return {
        "stacks": what["place"] if stack else None,
        "environments": environment or None,
        "apps": what["app"] or None,
    }[name]
