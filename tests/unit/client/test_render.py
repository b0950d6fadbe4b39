"""What is printed, as text."""

import io
from datetime import UTC, datetime, timedelta

from rich.console import Console, RenderableType

from plimsoll_client.cli import render
from plimsoll_contracts.api import (
    DeadLetterView,
    DimensionStatus,
    GateStatus,
    LimitChange,
    LimitsChanged,
    LimitView,
    ScopeStatus,
)
from plimsoll_contracts.dimensions import Basis, Dimension, Unit
from plimsoll_contracts.enforcement import EnforcementReply, Gate, Mode, Violation

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
ALICE = LimitView(value=4000, source="override", version=3, set_by="alice", set_at=NOW - timedelta(hours=2))
NONE = LimitView(value=None, source="none")


def text(renderable: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=200, markup=False, emoji=False, highlight=False, color_system=None)
    with console.capture() as capture:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def violation(**changes: object) -> Violation:
    told: dict[str, object] = {
        "code": "X403001CPUEXC",
        "scope": "acme/env:prod",
        "dimension": "cpu",
        "basis": "reserved",
        "limit": 4000,
        "limit_source": "override",
        "limit_set_by": "alice",
        "limit_set_at": NOW - timedelta(hours=2, minutes=5),
        "used": 3200,
        "held": 500,
        "asked": 500,
        "headroom": 300,
        "would_fit": 300,
        **changes,
    }
    return Violation.model_validate(told)


def reply(**changes: object) -> EnforcementReply:
    told: dict[str, object] = {"request_id": "r", "verb": "check", "tenant": "acme", "allowed": False, **changes}
    return EnforcementReply.model_validate(told)


def test_a_denial_reads_exactly_so() -> None:
    denied = reply(code="X403001CPUEXC", status=403, violations=(violation(),))
    assert text(render.verdict(denied, "acme/env:prod", NOW)) == (
        "DENIED X403001CPUEXC  acme/env:prod cpu (reserved)\n"
        "  limit 4000m (override, alice, 2h ago)  used 3200m  held 500m  asked 500m  would fit 300m"
    )


def test_every_violation_is_told_with_its_own_unit() -> None:
    second = violation(
        code="X403002MEMEXC",
        scope="acme",
        dimension="disk",
        basis=None,
        limit=8 << 30,
        limit_source="plan",
        limit_set_by=None,
        limit_set_at=None,
        used=0,
        held=0,
        asked=9 << 30,
        would_fit=8 << 30,
    )
    denied = reply(code="X403001CPUEXC", status=403, violations=(violation(), second))
    assert text(render.verdict(denied, "acme/env:prod", NOW)).splitlines()[2:] == [
        "DENIED X403002MEMEXC  acme disk",
        "  limit 8GiB (plan)  used 0B  held 0B  asked 9GiB  would fit 8GiB",
    ]


def test_a_denial_without_figures_says_why() -> None:
    denied = reply(code="X402001QTABLK", status=402, message="billing has blocked cpu")
    assert text(render.verdict(denied, "acme", NOW)) == "DENIED X402001QTABLK  acme\n  billing has blocked cpu"


def test_a_yes_and_a_shadowed_no() -> None:
    counted = {"cpu_reserved": 500, "cpu_limit": 500}
    assert text(render.verdict(reply(allowed=True, counted=counted), "acme", NOW)) == "ALLOWED  acme  cpu 500m"
    shadowed = reply(allowed=True, would_deny=True, code="X403001CPUEXC", violations=(violation(),))
    assert text(render.verdict(shadowed, "acme", NOW)).startswith("WOULD DENY X403001CPUEXC  acme/env:prod")


def test_a_file_that_was_refused_is_told_with_what_was_read_and_where_room_is_missing() -> None:
    short = {"code": "X403010NODCPU", "node": "n\x1b1", "dimension": "cpu", "capacity": 4000, "allocated": 3800,
             "asked": 500, "largest_free": 200, "eligible": 1}  # fmt: skip
    counted = {"cpu_reserved": 500, "cpu_limit": 2000, "memory_reserved": 1 << 30, "memory_limit": 1 << 30, "vapps": 1}
    denied = reply(code="X403010NODCPU", status=403, capacity=(short,), counted=counted)
    assert text(render.verdict(denied, "acme", NOW, is_file=True)) == (
        "DENIED X403010NODCPU  node n\\x1b1 cpu\n"
        "  capacity 4000m  allocated 3800m  asked 500m  largest free 200m\n"
        "  read from the file: cpu 500m (burst 2000m)  memory 1GiB  vapps 1"
    )


def line(**changes: object) -> DimensionStatus:
    told: dict[str, object] = {
        "dimension": Dimension.CPU,
        "basis": Basis.RESERVED,
        "unit": Unit.MILLICORES,
        "limit": ALICE,
        "ceiling": 4000,
        "used": 3200,
        "held": 500,
        "headroom": 300,
        "as_of": NOW - timedelta(seconds=38),
        **changes,
    }
    return DimensionStatus.model_validate(told)


def found(*lines: DimensionStatus, gates: tuple[GateStatus, ...] = (), **changes: object) -> ScopeStatus:
    told: dict[str, object] = {
        "scope": "acme/env:prod",
        "tenant": "acme",
        "known": True,
        "dimensions": lines,
        "gates": gates,
        "plan": "team",
        "entitlement_version": 14,
        "entitlement_at": NOW - timedelta(days=1),
        "open_holds": 1,
        "deployments": 3,
        "seq": 9,
        "as_of": NOW,
        **changes,
    }
    return ScopeStatus.model_validate(told)


def test_a_status_has_bars_units_and_the_age_of_each_figure() -> None:
    over = line(
        dimension=Dimension.MEMORY, unit=Unit.BYTES, basis=None, ceiling=1 << 30, used=3 << 30, held=0,
        headroom=-(2 << 30),
        limit=LimitView(value=1 << 30, source="plan", expires_at=NOW + timedelta(days=3), mode=Mode.SHADOW),
    )  # fmt: skip
    free = line(
        dimension=Dimension.VAPPS, unit=Unit.COUNT, basis=None, ceiling=None, used=7, held=0, headroom=None,
        as_of=None, limit=NONE,
    )  # fmt: skip
    assert text(render.status(found(line(), over, free), NOW)).splitlines() == [
        "acme/env:prod   plan team (version 14, 1d ago)   3 deployments   1 open hold   read 0s ago",
        "DIMENSION        USED  HELD  LIMIT                        %      HEADROOM  CHANGED  LIMIT FROM",
        "cpu (reserved)  3200m  500m  4000m  ████████████▒▒▒░   92 %          300m  38s ago  override, alice, 2h ago",
        (
            "memory           3GiB    0B   1GiB  ████████████████  300 %  over by 2GiB  38s ago  "
            "plan, until 2026-12-04 12:00 UTC, shadow"
        ),
        "vapps               7     0      -                        -             -  never    no limit set",
    ]


def test_gates_that_stand_alike_are_one_line() -> None:
    gates = tuple(GateStatus(gate=gate, state="fail_open", detail="no row") for gate in Gate)
    assert text(render.status(found(gates=gates), NOW)).splitlines()[-1] == (
        f"! gates {', '.join(Gate)} FAILING OPEN: no row"
    )


def test_a_gate_that_fails_open_stands_out() -> None:
    gates = (
        GateStatus(gate=Gate.DEPLOYMENTS, state="pass"),
        GateStatus(gate=Gate.QUOTA_BLOCKED, state="fail_open", detail="no projection row"),
    )
    assert text(render.status(found(gates=gates), NOW)).splitlines()[-2:] == [
        "gate deployments: pass",
        "! gate quota_blocked FAILING OPEN: no projection row",
    ]


def test_a_change_says_what_holds_now_and_an_unset_what_it_falls_back_to() -> None:
    plan = LimitView(value=2000, source="plan")
    done = LimitsChanged(
        scope="acme",
        changes=(
            LimitChange(dimension=Dimension.CPU, before=NONE, after=ALICE, warnings=("usage is above",)),
            LimitChange(dimension=Dimension.CPU, before=ALICE, after=plan),
        ),
    )
    assert text(render.changed(done, NOW)).splitlines() == [
        "acme  cpu  - (no limit set) -> 4000m (override, alice, 2h ago)",
        "  ! usage is above",
        "acme  cpu  4000m (override, alice, 2h ago) falls back to 2000m (plan)",
    ]


def test_dead_letters_show_hostile_keys_and_values_harmlessly() -> None:
    letter = DeadLetterView(
        id=7,
        topic="usage.deltas",
        partition=3,
        offset=41,
        key="\x1b]0;owned\x07",
        code="X400101UNDECO",
        detail="not JSON [bold]really[/bold] :smile:",
        at=NOW - timedelta(minutes=5),
        size=4,
        value_base64="/3sbWw==",  # ff 7b 1b 5b
    )
    listed = text(render.dead_letters([letter], NOW))
    assert "\\x1b]0;owned\\x07" in listed
    assert "not JSON [bold]really[/bold] :smile:" in listed
    shown = text(render.dead_letter(letter, NOW))
    assert "\\xff{\\x1b[" in shown
    assert "\x1b" not in listed + shown
