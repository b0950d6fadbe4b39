"""What ``plimsoll quota simulate`` asks for and prints; against canned answers."""

import csv
import io
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.client.canned import Canned, plimsoll

from plimsoll_client.cli import simulating
from plimsoll_contracts import codes

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
OVER = {"scope": "acme", "dimension": "cpu", "basis": "reserved", "limit": 2000, "used": 1500, "held": 0, "asked": 900,
        "over_by": 400}  # fmt: skip
FARED = {"decided_at": NOW.isoformat(), "tenant": "acme", "request_id": "r1", "scope": "acme/blog/prod",
         "deployment": "d1", "code": codes.CPU_EXCEEDED.code, "over": [OVER]}  # fmt: skip
NOTHING = {"since": NOW.isoformat(), "as_of": NOW.isoformat(), "tenants": 1, "replayed": 40, "facts": 3,
           "refused_then": 1, "refused_proposed": 1, "newly_refused": 0, "newly_allowed": 0, "left_out": 0,
           "not_replayed": 0}  # fmt: skip


def sent(service: Canned) -> dict[str, Any]:
    ((method, path, body),) = service.asked
    assert (method, path) == ("POST", "/api/v1/quota/simulate")
    return dict(body)


def test_limits_are_read_by_scope_and_sent_in_base_units(service: Canned, capsys: pytest.CaptureFixture[str]) -> None:
    service.say(NOTHING)
    command = (
        "quota simulate --set acme cpu=2 memory=8g acme/env:dev memory=unlimited --set defaults vapps=3"
        " --unset acme/blog/prod cpu disk --since 7d"
    )
    assert plimsoll(service, command) == 0
    body = sent(service)
    since = datetime.fromisoformat(body.pop("since"))
    assert abs(datetime.now(UTC) - timedelta(days=7) - since) < timedelta(minutes=1)
    assert body == {
        "defaults": {"vapps": 3},
        "scopes": {
            "acme": {"cpu": 2000, "memory": 8 << 30},
            "acme/env:dev": {"memory": "unlimited"},
            "acme/blog/prod": {"cpu": None, "disk": None},
        },
    }
    assert "40 decisions of 1 tenants since 2026-12-01 12:00:00 UTC" in capsys.readouterr().out


def test_a_file_as_apply_takes_it_is_tried_and_set_comes_on_top(service: Canned, tmp_path: Path) -> None:
    file = tmp_path / "quotas.yaml"
    file.write_text("scopes:\n  acme:\n    cpu: 4\n    memory: 8g\n")
    service.say(NOTHING)
    assert plimsoll(service, f"quota simulate -f {file} --set acme cpu=1") == 0
    assert sent(service)["scopes"] == {"acme": {"cpu": 1000, "memory": 8 << 30}}


def test_what_would_be_refused_is_listed_and_ends_with_5(service: Canned, capsys: pytest.CaptureFixture[str]) -> None:
    found = {**NOTHING, "refused_proposed": 3, "newly_refused": 3, "refusals": [FARED], "left_out": 2, "cut": True,
             "not_replayed": 1, "differs": {"the plan was another": 4}, "replayed_until": NOW.isoformat(),
             "over_now": [{**OVER, "asked": 0}]}  # fmt: skip
    service.say(found)
    assert plimsoll(service, "quota simulate --set acme cpu=2") == 5
    out, err = capsys.readouterr()
    refused = "  2026-12-01 12:00:00 UTC  REFUSED  r1  acme/blog/prod  d1  X403001CPUEXC"
    assert out.splitlines()[1:] == [
        "newly refused 3   newly allowed 0",
        f"{refused}  acme cpu (reserved) over by 400m: limit 2000m  used 1500m  asked 900m",
        "  and 2 more",
        "OVER NOW  acme cpu (reserved) over by 400m: limit 2000m  used 1500m",
        "left out 2 commits, releases and facts of what would have been refused",
        "refused for gates, nodes or a queue, and so here: 1",
        "not told of: 4 decisions do not come out as recorded: the plan was another",
        "cut at 2026-12-01 12:00:00 UTC",
    ]
    assert "more than is replayed" in err
    service.asked.clear()
    service.say({**NOTHING, "newly_allowed": 1, "admissions": [FARED]})
    assert plimsoll(service, "quota simulate --unset acme cpu -o csv") == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["would_be"], row["request_id"], row["limited_scope"], row["over_by"]) == (
        "allowed",
        "r1",
        "acme",
        "400",
    )


@pytest.mark.parametrize(
    "options",
    ["", "--set acme", "--set cpu=2", "--set acme cpu=x", "--set acme gpu=1", "--unset acme", "--set acme/blog cpu=1",
     "--set acme cpu=1 --since never", "--set acme/env:dev environments=1 --since 2999-01-01"],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_before_anything_is_asked(service: Canned, options: str) -> None:
    assert plimsoll(service, f"quota simulate {options}") == 2
    assert service.asked == []


def test_a_long_one_says_that_it_goes_on(
    service: Canned, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulating, "_REMIND_SECONDS", 0.05)
    service.delay = 0.3
    service.say(NOTHING)
    assert plimsoll(service, "quota simulate --set acme cpu=2") == 0
    assert "still replaying after" in capsys.readouterr().err
