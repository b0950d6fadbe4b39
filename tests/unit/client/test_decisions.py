"""What ``plimsoll decisions``, ``quota usage`` and ``gates`` ask for and print; against canned answers."""

import csv
import io
import json
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.client.canned import Canned, plimsoll

from plimsoll_client.cli import decisions
from plimsoll_client.cli.figures import parse_since
from plimsoll_contracts import codes

NOW = datetime.now(UTC)
CPU = codes.CPU_EXCEEDED


def line(number: int, **changes: Any) -> dict[str, Any]:
    told = {"tenant": "acme", "request_id": f"r{number}", "verb": "reserve", "scope": "acme/env:prod", "allowed": True,
            "deployment": "d1", "decided_at": (NOW - timedelta(seconds=100 - number)).isoformat()}  # fmt: skip
    return told | changes


def page(*lines: dict[str, Any], after: str | None = None) -> dict[str, Any]:
    return {"decisions": lines, "next": after}


VIOLATION = {
    "code": CPU.code, "scope": "acme/env:prod", "dimension": "cpu", "basis": "reserved", "limit": 4000,
    "limit_source": "override", "limit_set_by": "al\x1bice", "used": 3200, "held": 500, "asked": 500, "headroom": 300,
    "would_fit": 300,
}  # fmt: skip
REPLY = {"request_id": "r1", "verb": "reserve", "tenant": "acme", "allowed": False, "code": CPU.code, "status": 403}
DETAIL = line(
    1, allowed=False, code=CPU.code, message="too much", request={"footprint": {"cpu": 500}, "app": "web"},
    reply={**REPLY, "violations": [VIOLATION]}, seq=17, entitlement_version=3, present_entitlement_version=4,
    defaults_version=2, present_defaults_version=2,
)  # fmt: skip


def test_list_follows_pages_up_to_its_limit_and_says_that_there_is_more(
    service: Canned, capsys: pytest.CaptureFixture[str]
) -> None:
    service.say(page(line(3), line(2, allowed=False, code=CPU.code, message="no \x1b[2J room"), after="x~y~z"))
    service.say(page(line(1), after="more"))
    assert plimsoll(service, "decisions list acme/env:prod --limit 2 --since 2h --denied --verb reserve") == 0
    out, err = capsys.readouterr()
    assert [row.split()[3] for row in out.splitlines()] == ["ALLOWED", "DENIED"]
    assert "no \\x1b[2J room" in out
    assert "more than 2" in err
    (_, first, _), (_, second, _) = service.asked
    assert "/tenants/acme/decisions?since=" in first
    for part in ("verb=reserve", "allowed=false", "limit=2", "environment=prod"):
        assert part in first
    assert "after=x~y~z" in second


def test_list_of_everybody_as_json_and_csv(service: Canned, capsys: pytest.CaptureFixture[str]) -> None:
    service.say(page(line(1)))
    assert plimsoll(service, "decisions list -o json") == 0
    assert json.loads(capsys.readouterr().out)["decisions"][0]["request_id"] == "r1"
    assert service.asked[0][1].startswith("/api/v1/quota/decisions?")
    service.say(page(line(1, fail_open=["deployments", "plan_limits"])))
    assert plimsoll(service, "decisions list -o csv") == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["request_id"], row["allowed"], row["fail_open"]) == ("r1", "True", "deployments plan_limits")
    service.say(page())
    assert plimsoll(service, "decisions list") == 0
    assert "no decision like this" in capsys.readouterr().err


@pytest.mark.parametrize("options", ["--denied --allowed", "--limit 0", "--since never", "--until 2999-01-01"])
def test_what_cannot_be_meant_is_refused_before_anything_is_asked(service: Canned, options: str) -> None:
    assert plimsoll(service, f"decisions list {options}") == 2
    assert service.asked == []


@pytest.mark.parametrize("command", ["decisions show r1 --tenant acme", "quota explain r1 --tenant acme"])
def test_a_denial_is_shown_with_every_figure_and_what_it_rests_on(
    service: Canned, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    service.say(DETAIL)
    assert plimsoll(service, command) == 0
    assert service.asked == [("GET", "/api/v1/quota/tenants/acme/decisions/r1", None)]
    out = capsys.readouterr().out.splitlines()
    assert out[0] == f"DENIED {CPU.code}  acme/env:prod  reserve r1  deployment d1"
    assert "  too much" in out
    limit = "  limit 4000m (override, al\\x1bice)  used 3200m  held 500m  asked 500m  would fit 300m"
    assert limit in out
    assert out[-5:] == [
        "asked       cpu 500m  app web",
        "rests on    charges, holds and limits of acme as of step 17 of its history",
        "plan        version 3; now version 4",
        "defaults    version 2, which still holds",
        f"what to do  {CPU.remedy}",
    ]


def test_an_allowed_decision_says_what_was_not_judged_and_how_its_hold_stands(
    service: Canned, capsys: pytest.CaptureFixture[str]
) -> None:
    reply = {**REPLY, "allowed": True, "code": None, "status": 200, "notes": ["service web has no resources"]}
    hold = {"id": "r1", "deployment": "d1", "state": "open", "expires_at": (NOW + timedelta(minutes=9)).isoformat()}
    service.say({**DETAIL, "allowed": True, "code": None, "message": "", "reply": reply, "fail_open": ["plan_limits"],
                 "entitlement_version": None, "present_entitlement_version": None, "hold_now": hold,
                 "request": {"footprint": None, "compose": "x"}, "present_defaults_version": 5})  # fmt: skip
    assert plimsoll(service, "decisions show r1 --tenant acme") == 0
    out = capsys.readouterr().out
    for told in ("ALLOWED  acme/env:prod", "plan        none was known", "defaults    version 2; now version 5",
                 "not judged  gates that failed open: plan_limits", "hold        r1 is open, expires in ",
                 "note        service web has no resources", "a compose file"):  # fmt: skip
        assert told in out


class _Enough(Exception):
    pass


def test_tail_tells_each_once_also_what_is_committed_late_and_survives_an_outage(
    service: Canned, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(decisions.time, "sleep", sleep)  # type: ignore[attr-defined]  # the module it uses
    service.say(page(line(1), line(3)))
    service.say(page(line(1), line(2), line(3), line(4), after="a~b~c"))
    service.say(page(line(5, allowed=False, code=CPU.code)))
    service.refuse(codes.UNAVAILABLE, "away")
    service.say(page(line(5), line(60)))
    assert plimsoll(service, "decisions tail acme --since 5m -o json") == 0
    out, err = capsys.readouterr()
    assert [json.loads(each)["request_id"] for each in out.splitlines()] == ["r1", "r3", "r2", "r4", "r5", "r60"]
    assert "trying again" in err
    assert all("oldest_first=true" in path for _, path, _ in service.asked)


def test_tail_of_what_cannot_be_reached_fails_at_once(service: Canned) -> None:
    service.refuse(codes.UNAVAILABLE, "away")
    assert plimsoll(service, "decisions tail acme") == 8
    service.refuse(codes.NOT_FOUND, "no")
    assert plimsoll(service, "decisions tail acme") == 3


@pytest.mark.parametrize("output", ["table", "csv"])
def test_tail_ends_cleanly_at_ctrl_c(service: Canned, output: str) -> None:
    for _ in range(20):
        service.say(page(line(1), line(2, allowed=False, code=CPU.code, message="no room")))
    command = [sys.executable, "-m", "plimsoll_client.cli", "decisions", "tail", "--since", "1h"]
    with subprocess.Popen(
        [*command, "--url", service.url, "-o", output], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as tail:
        assert tail.stdout is not None
        lines = [tail.stdout.readline() for _ in range(3 if output == "csv" else 2)]
        tail.send_signal(signal.SIGINT)
        rest, err = tail.communicate(timeout=10)
        assert (tail.returncode, err) == (0, "")
    assert rest == ""
    if output == "csv":
        assert [each.split(",")[2] for each in lines] == ["request_id", "r1", "r2"]
    else:
        assert "UTC  ALLOWED     reserve  acme/env:prod  d1  r1" in lines[0]
        assert "DENIED      reserve  acme/env:prod  d1  r2  X403001CPUEXC  no room" in lines[1]


def test_usage_at_an_instant(service: Canned, capsys: pytest.CaptureFixture[str]) -> None:
    cpu = {"dimension": "cpu", "basis": "reserved", "unit": "millicores", "used": 3200, "held": 500}
    told = {"scope": "acme/env:prod", "tenant": "acme", "at": (NOW - timedelta(hours=2)).isoformat(), "deployments": 3,
            "open_holds": 1, "kept_from": NOW.isoformat(), "dimensions": [cpu]}  # fmt: skip
    service.say(told)
    assert plimsoll(service, "quota usage acme/env:prod --at 2h") == 0
    out = capsys.readouterr().out
    assert "(2h ago)   deployments 3   open holds 1" in out
    assert "cpu (reserved)  3200m  500m" in out
    assert "environment=prod&at=" in service.asked[0][1]
    service.say(told)
    assert plimsoll(service, "quota usage acme/env:prod -o csv") == 0
    assert "at=" not in service.asked[1][1]
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["used"], row["held"], row["unit"]) == ("3200", "500", "millicores")
    service.refuse(codes.BEFORE_RETENTION, "history is kept from then on")
    assert plimsoll(service, "quota usage acme --at 50d") == 3
    assert codes.BEFORE_RETENTION.remedy in capsys.readouterr().err


def test_when_something_was() -> None:
    now = datetime(2026, 12, 1, 12, tzinfo=UTC)
    assert parse_since("2h", now) == now - timedelta(hours=2)
    assert parse_since("2026-11-30T12:00+00:00", now) == now - timedelta(days=1)
    assert parse_since("2026-11-30", now) == datetime(2026, 11, 30).astimezone(UTC)
    for text in ("2026-12-02", "0h", "yesterday", "0001-01-01T00:00+14:00"):
        with pytest.raises(ValueError, match=r"."):
            parse_since(text, now)


def test_gates_of_everybody_and_of_one(service: Canned, capsys: pytest.CaptureFixture[str]) -> None:
    totals = [{"gate": "deployments", "failed_open": 7, "last_at": NOW.isoformat()}]
    service.say({"expected": True, "gates": totals, "without_entitlement": [{"tenant": "a", "deployments": 2}],
                 "next": "a"})  # fmt: skip
    service.say({"expected": True, "gates": totals, "without_entitlement": [{"tenant": "b", "deployments": 0}]})
    assert plimsoll(service, "gates") == 4
    lines = [" ".join(each.split()) for each in capsys.readouterr().out.splitlines()]
    assert lines[1].startswith("deployments 7 ")
    assert lines[-2:] == ["a 2 never", "b 0 never"]
    service.say({"expected": False, "gates": totals})
    assert plimsoll(service, "gates") == 0
    assert "off here" in capsys.readouterr().err

    service.say({"tenant": "acme", "plan": "team", "entitlement_version": 3, "entitlement_at": NOW.isoformat(),
                 "gates": [{"gate": "deployments", "state": "deny", "detail": "plan team has ended"}]})  # fmt: skip
    assert plimsoll(service, "gates acme") == 0
    out = capsys.readouterr().out
    assert " ago)   last let through unjudged: never" in out
    assert "plan team has ended" in out
    service.say({"tenant": "acme", "gates": [{"gate": "deployments", "state": "fail_open"}]})
    assert plimsoll(service, "gates acme") == 4
    assert "no entitlement is known" in capsys.readouterr().out


def test_a_figure_is_explained_down_to_its_charges_and_holds(
    service: Canned, capsys: pytest.CaptureFixture[str]
) -> None:
    ago = (NOW - timedelta(hours=2, minutes=5)).isoformat()
    soon = (NOW + timedelta(days=9, hours=12)).isoformat()
    alice = {"value": 4000, "source": "override", "set_by": "alice", "set_at": ago, "reason": "a pilot"}
    nothing = {"value": None, "source": "none"}
    cpu = {
        "dimension": "cpu", "basis": "reserved", "unit": "millicores", "ceiling": 4000, "used": 4200, "held": 100,
        "headroom": -300, "charges_in_all": 3, "holds_in_all": 1, "members": [],
        "levels": [{"level": "override", "holds": True, "limit": alice},
                   {"level": "plan", "holds": False, "limit": nothing}],
        "charges": [{"deployment": "d1", "revision": 7, "scope": "acme/blog/prod", "counts": 3000, "raw": 2000,
                     "multiplier_milli": 1500, "since": ago}],
        "holds": [{"hold": "r1", "deployment": "d2", "scope": "acme", "adds": 100, "since": ago, "expires_at": soon}],
        "above": [{"scope": "acme", "limit": {"value": 9000, "source": "plan"}, "ceiling": 9000, "used": 4200,
                   "held": 100, "headroom": 4700}],
    }  # fmt: skip
    gates = {"tenant": "acme", "plan": "team", "entitlement_version": 3, "entitlement_at": ago,
             "gates": [{"gate": "deployments", "state": "pass"}]}  # fmt: skip
    disk = {"scope": "acme", "bytes": 1024, "method": "walk", "complete": False, "measured_at": ago}
    waiter = {"request_id": "w", "deployment": "d9", "scope": "acme", "since": ago, "until": soon}
    service.say({"scope": "acme/env:prod", "tenant": "acme", "as_of": NOW.isoformat(), "figures": [cpu], "gates": gates,
                 "measurements": [disk], "waiting": [waiter]})  # fmt: skip
    assert plimsoll(service, "quota explain acme/env:prod cpu") == 0
    assert service.asked[0][1] == "/api/v1/quota/tenants/acme/explain?environment=prod&dimension=cpu"
    assert capsys.readouterr().out.splitlines() == [
        "acme/env:prod",
        "cpu (reserved)  used 4200m  held 100m  limit 4000m  over by 300m",
        "  -> override 4000m (override, alice, 2h ago): a pilot",
        "     plan     not set",
        "     above    acme: limit 9000m (plan)  used 4200m  held 100m  headroom 4700m",
        "     charge   3000m = 2000m x 1.5  d1 in acme/blog/prod at revision 7, 2h ago",
        "              and 2 smaller ones",
        "     hold    +100m  d2 in acme, hold r1, 2h ago, expires in 9d",
        "measured  acme: 1KiB by walk, incomplete, 2h ago",
        "plan      team, version 3, 2h ago",
        "gate      deployments: pass",
        "waiting   w for d9 in acme, 2h ago, until in 9d",
    ]
    assert plimsoll(service, "quota explain acme cpy") == 2
