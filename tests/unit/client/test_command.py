"""The command as a whole: what it sends, where it writes, how it ends; against canned answers on loopback."""

import csv
import io
import json
import os
import pty
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.client.canned import Canned, plimsoll

from plimsoll_client.cli.__main__ import run
from plimsoll_contracts import codes
from plimsoll_contracts.codes import Code

NOW = datetime.now(UTC).isoformat().replace("+00:00", "Z")
NONE = {"value": None, "source": "none"}
LINE = {
    "dimension": "cpu",
    "basis": "reserved",
    "unit": "millicores",
    "limit": {"value": 4000, "source": "override", "set_by": "al\x1bice"},
    "ceiling": 4000,
    "used": 3200,
    "held": 500,
    "headroom": 300,
    "as_of": NOW,
}
STATUS = {
    "scope": "acme/env:prod",
    "tenant": "acme",
    "known": True,
    "dimensions": [LINE],
    "gates": [],
    "open_holds": 0,
    "deployments": 0,
    "seq": 0,
    "as_of": NOW,
}


def test_status_as_a_table_goes_to_stdout_alone(service: Canned, capsys: pytest.CaptureFixture[str]) -> None:
    service.say(STATUS)
    assert plimsoll(service, "quota status acme/env:prod") == 0
    out, err = capsys.readouterr()
    assert "cpu (reserved)  3200m  500m  4000m" in out
    assert "al\\x1bice" in out
    assert "\x1b" not in out
    assert err == ""
    assert service.asked == [("GET", "/api/v1/quota/tenants/acme/status?environment=prod", None)]


@pytest.mark.parametrize("place", ["before", "after"])
def test_json_is_the_answer_itself_in_ascii(service: Canned, capsys: pytest.CaptureFixture[str], place: str) -> None:
    service.say({**STATUS, "plan": "größe \u202e"})
    command = "-o json quota status acme" if place == "before" else "quota status acme -o json"
    assert plimsoll(service, command) == 0
    out = capsys.readouterr().out
    assert out.isascii()
    read = json.loads(out)
    assert (read["dimensions"][0]["used"], read["plan"]) == (3200, "größe \u202e")


def test_csv_has_integers_in_base_units(service: Canned, capsys: pytest.CaptureFixture[str]) -> None:
    service.say(STATUS)
    plimsoll(service, "quota status acme -o csv")
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["dimension"], row["used"], row["ceiling"]) == ("cpu", "3200", "4000")


def test_a_gate_that_fails_open_ends_with_4_and_an_unknown_tenant_with_3(
    service: Canned, capsys: pytest.CaptureFixture[str]
) -> None:
    service.say({**STATUS, "gates": [{"gate": "plan_limits", "state": "fail_open"}]})
    assert plimsoll(service, "quota status acme") == 4
    assert "failing open: plan_limits" in capsys.readouterr().err
    service.say({**STATUS, "known": False})
    assert plimsoll(service, "quota status acme") == 3
    assert "quota list" in capsys.readouterr().err


def test_set_sends_base_units_all_at_once(service: Canned, capsys: pytest.CaptureFixture[str]) -> None:
    after = {"value": 4000, "source": "override", "set_by": "bob", "set_at": NOW}
    service.say({"scope": "acme/env:prod", "changes": [{"dimension": "cpu", "before": NONE, "after": after}]})
    command = "quota set acme/env:prod cpu=4 memory=unlimited --by bob --reason because --shadow --force --until 2h"
    assert plimsoll(service, command) == 0
    ((method, path, body),) = service.asked
    assert (method, path) == ("PATCH", "/api/v1/quota/tenants/acme/limits?environment=prod")
    assert datetime.fromisoformat(body.pop("expires_at")) > datetime.now(UTC)
    assert body == {
        "limits": {"cpu": 4000, "memory": "unlimited"},
        "by": "bob",
        "reason": "because",
        "mode": "shadow",
        "force": True,
    }
    assert "acme/env:prod  cpu  - (no limit set) -> 4000m (override, bob, " in capsys.readouterr().out


def test_lines_that_are_piped_are_not_folded(
    service: Canned, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    service.refuse(codes.NOT_FOUND, "far " * 20 + "away")
    assert plimsoll(service, "quota set acme cpu=4") == 3
    assert capsys.readouterr().err.splitlines()[0] == f"error: X404001NOTFND  {'far ' * 20}away"
    after = {"value": 4000, "source": "override", "set_by": "a rather long name", "set_at": NOW}
    service.say({"scope": "acme/env:prod", "changes": [{"dimension": "cpu", "before": NONE, "after": after}]})
    assert plimsoll(service, "quota set acme/env:prod cpu=4") == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_unset_and_the_defaults(service: Canned) -> None:
    service.say({"scope": "defaults", "changes": []})
    assert plimsoll(service, "quota unset defaults cpu memory --by bob") == 0
    ((_, path, body),) = service.asked
    assert (path, body["limits"]) == ("/api/v1/quota/defaults", {"cpu": None, "memory": None})
    service.say({"limits": {"cpu": {"value": 1000, "source": "default"}}})
    assert plimsoll(service, "quota status defaults") == 0


def test_check_asks_for_the_place_and_a_denial_ends_with_5(service: Canned, capsys: pytest.CaptureFixture[str]) -> None:
    denied = {"request_id": "r", "verb": "check", "tenant": "acme", "allowed": False, "code": "X403001CPUEXC",
              "status": 403, "message": "no"}  # fmt: skip
    service.say(denied)
    assert plimsoll(service, "quota check acme/blog/prod --cpu 500m --memory 1g --app blog") == 5
    out, err = capsys.readouterr()
    assert out == "DENIED X403001CPUEXC  acme/blog/prod\n  no\n"
    assert codes.CPU_EXCEEDED.remedy in err
    ((_, _, body),) = service.asked
    assert (body["tenant"], body["environment"], body["stack"], body["app"]) == ("acme", "prod", "blog", "blog")
    assert body["footprint"] == {"cpu": 500, "memory": 1 << 30, "disk": 0, "vapps": 0}
    counted = {"vapps": 1}
    service.say(
        {**denied, "allowed": True, "code": None, "status": 200, "fail_open": ["plan_limits"], "counted": counted}
    )
    assert plimsoll(service, "quota check acme --vapps 1") == 0
    out, err = capsys.readouterr()
    assert out == "ALLOWED  acme  vapps 1\n"
    assert "plan_limits" in err


def test_a_compose_file_is_sent_as_it_is_with_what_the_app_file_says(
    service: Canned, tmp_path: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "compose.yaml").write_text("services: {web: {image: größe}}\n")
    (tmp_path / "app.yaml").write_text("name: blog\nquota:\n  reservation_multiplier: 1.25\n  limit_multiplier: 2\n")
    service.say({"request_id": "r", "verb": "check", "tenant": "acme", "allowed": True, "counted": {"cpu_reserved": 5},
                 "notes": ["service web has no \x1bresources"]})  # fmt: skip
    assert plimsoll(service, "quota check acme/blog/prod -f compose.yaml --app-file app.yaml --app blog") == 0
    out, err = capsys.readouterr()
    assert out == "ALLOWED  acme/blog/prod  cpu 5m (burst 0m)\n"
    assert err == "note: service web has no \\x1bresources\n"
    ((_, path, body),) = service.asked
    assert path == "/api/v1/quota/check"
    assert body["compose"] == "services: {web: {image: größe}}\n"
    assert body["footprint"] is None
    assert body["app_multipliers"] == {"reservation_milli": 1250, "limit_milli": 2000}


def test_a_compose_file_may_come_through_a_pipe(service: Canned) -> None:
    service.say({"request_id": "r", "verb": "check", "tenant": "acme", "allowed": True})
    command = [sys.executable, "-m", "plimsoll_client.cli", "quota", "check", "acme", "-f", "-", "--url", service.url]
    done = subprocess.run(command, input=b"services: {}", capture_output=True, check=True)
    assert done.stdout == b"ALLOWED  acme\n"
    assert service.asked[0][2]["compose"] == "services: {}"


@pytest.mark.parametrize(
    "case",
    [
        (None, None, "", "compose.yaml cannot be read: No such file"),
        ("", None, "", "compose.yaml is empty"),
        ("x" * (256 * 1024 + 1), None, "", "262,145 characters"),
        (b"\xff\xfe", None, "", "no text in UTF-8"),
        ("services: {}", None, "--cpu 1", "two footprints"),
        ("services: {}", "quota: {limit_multiplier: 1.2345}", "", "app.yaml: quota.limit_multiplier is '1.2345'"),
        ("services: {}", "quota: {limit_multiplier: [1]}", "", "quota.limit_multiplier is ['1']"),
        ("services: {}", "quota: {reservation_multiplier: 0}", "", "quota.reservation_multiplier is '0'"),
        ("services: {}", "quota: {", "", "app.yaml is no YAML"),
        ("services: {}", "!!python/object:os.system {}", "", ""),
    ],
)
def test_files_that_cannot_be_sent_are_told_before_anything_is(
    service: Canned,
    tmp_path: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    case: tuple[str | bytes | None, str | None, str, str],
) -> None:
    compose, app, more, says = case
    monkeypatch.chdir(tmp_path)
    if compose is not None:
        content = compose if isinstance(compose, bytes) else compose.encode()
        (tmp_path / "compose.yaml").write_bytes(content)
    (tmp_path / "app.yaml").write_text(app or "")
    service.say({"request_id": "r", "verb": "check", "tenant": "acme", "allowed": True})
    assert plimsoll(service, f"quota check acme -f compose.yaml --app-file app.yaml {more}") == (2 if says else 0)
    if says:
        assert says in capsys.readouterr().err
        assert service.asked == []


def test_lists_follow_their_pages(service: Canned, capsys: pytest.CaptureFixture[str]) -> None:
    service.say({"scopes": ["acme", "evil\x1b[2J"], "next": "evil"})
    service.say({"scopes": ["zeta"]})
    assert plimsoll(service, "quota list") == 0
    assert capsys.readouterr().out == "acme\nevil\\x1b[2J\nzeta\n"
    assert "after=evil" in service.asked[1][1]


def test_a_list_of_how_full_scopes_are_begins_with_the_fullest(
    service: Canned, capsys: pytest.CaptureFixture[str]
) -> None:
    burst = {**LINE, "basis": "burst", "ceiling": 8000}
    free = {**LINE, "dimension": "apps", "unit": "count", "basis": None, "ceiling": None, "headroom": None}
    full = {**free, "ceiling": 0, "used": 1, "held": 0, "headroom": -1}

    def answers() -> None:
        service.say({"scopes": ["a", "b", "c"]})
        for name, lines in (("a", [free, burst, LINE]), ("b", [free]), ("c", [LINE, full])):
            service.say({**STATUS, "scope": name, "dimensions": lines})

    answers()
    assert plimsoll(service, "quota list --usage") == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["SCOPE", "FULLEST", "USED", "HELD", "LIMIT", "%"],
        ["c", "apps", "1", "0", "0", "over"],
        ["a", "cpu", "(reserved)", "3200m", "500m", "4000m", "92", "%"],
        ["b", "nothing", "is", "limited", "-"],
    ]
    answers()
    assert plimsoll(service, "quota list --over 93 -o json") == 0
    (only,) = json.loads(capsys.readouterr().out)["scopes"]
    assert (only["scope"], only["dimension"], only["ceiling"]) == ("c", "apps", 0)


def test_nothing_is_no_line(service: Canned, capsys: pytest.CaptureFixture[str]) -> None:
    service.say({"scopes": []})
    assert plimsoll(service, "quota list") == 0
    assert capsys.readouterr() == ("", "nothing is known yet\n")
    service.say({**STATUS, "known": False})
    assert plimsoll(service, "quota status nobody") == 3
    assert capsys.readouterr().out == "", "a table of zeros would read as if there were such a tenant"


def test_dead_letters_are_listed_shown_and_replayed(service: Canned, capsys: pytest.CaptureFixture[str]) -> None:
    letter = {"id": 7, "topic": "usage.deltas", "partition": 1, "offset": 2, "key": "acme", "code": "X400101UNDECO",
              "detail": "not JSON", "at": NOW, "size": 3}  # fmt: skip
    service.say({"dead_letters": [letter]})
    assert plimsoll(service, "dlq list") == 0
    service.say({**letter, "value_base64": "e30="})
    assert plimsoll(service, "dlq show 7") == 0
    service.say(letter)
    assert plimsoll(service, "dlq replay 7 --dry-run") == 0
    out = capsys.readouterr().out
    assert "not JSON" in out
    assert "value        {}" in out
    assert "would replay 7 to usage.deltas (3 bytes)" in out
    assert service.asked[-1][:2] == ("POST", "/api/v1/quota/dead-letters/7/replay?dry_run=true")


@pytest.mark.parametrize(
    ("code", "ends"),
    [
        (codes.INTERNAL, 1),
        (codes.INVALID_NAME, 2),
        (codes.NOT_FOUND, 3),
        (codes.LIMIT_BELOW_USAGE, 6),
        (codes.LIMIT_VERSION_CONFLICT, 6),
        (codes.REPLY_TO_REFUSED, 7),
        (codes.GATE_UNAVAILABLE, 8),
    ],
)
def test_each_problem_ends_with_its_code_and_says_what_to_try(
    service: Canned, capsys: pytest.CaptureFixture[str], code: Code, ends: int
) -> None:
    service.refuse(code, "it went \x1b[31mwrong")
    assert plimsoll(service, "quota set acme cpu=4") == ends
    out, err = capsys.readouterr()
    assert out == ""
    assert f"error: {code.code}  it went \\x1b[31mwrong" in err
    assert "try: " in err
    assert ("--force" in err) == (code is codes.LIMIT_BELOW_USAGE)


def test_what_is_no_plimsoll_is_said_to_be_none(service: Canned, capsys: pytest.CaptureFixture[str]) -> None:
    service.say(b"<html>\x1b[2J", 404)
    assert plimsoll(service, "quota list") == 3
    assert "is it Plimsoll?" in capsys.readouterr().err
    service.say({"hello": "world"})
    assert plimsoll(service, "quota list") == 1
    assert "same version" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    ["quota", "quota frob", "quota status", "quota status Acme", "quota set acme", "quota set acme cpu=four",
     "quota set acme/blog cpu=4", "quota set acme cpu=4 --until yesterday", "quota check acme --cpu unlimited",
     "quota set acme cpu=1 --if-version three", "quota check acme --app Blog!", "dlq show x", "-o xml quota list",
     "quota set acme cpu=4 --by \x1b[2J"],
)  # fmt: skip
def test_usage_errors_end_with_2_before_anything_is_sent(
    service: Canned, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert plimsoll(service, command) == (0 if command == "quota" else 2)
    assert service.asked == []
    out, err = capsys.readouterr()
    assert (out if command == "quota" else err) != ""
    assert "\x1b" not in out + err


def test_nobody_there_ends_with_8(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(["quota", "list", "--url", "http://127.0.0.1:9"]) == 8
    assert "make up" in capsys.readouterr().err
    monkeypatch.setenv("PLIMSOLL_CONTEXT", "/nonexistent/context.json")
    assert run(["quota", "list"]) == 8
    assert "/nonexistent/context.json" in capsys.readouterr().err


def test_a_hostile_address_is_told_without_acting_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["quota", "list", "--url", "http://127.0.0.1:1/\x1b[31m"]) == 2
    err = capsys.readouterr().err
    assert "is no address" in err
    assert "\x1b" not in err


def test_the_context_file_names_the_service(
    service: Canned, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PLIMSOLL_CONTEXT", raising=False)
    (tmp_path / ".local").mkdir()
    (tmp_path / ".local" / "context.json").write_text(json.dumps({"http": service.url}))
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    service.say({"scopes": ["acme"]})
    assert run(["quota", "list"]) == 0
    assert capsys.readouterr().out == "acme\n"
    assert run(["context", "http"]) == 0
    assert capsys.readouterr().out == f"{service.url}\n"
    assert run(["context"]) == 0
    assert capsys.readouterr().out.split() == ["http", service.url]
    assert run(["context", "kafka"]) == 3


def _in_a_terminal(service: Canned, **environment: str) -> bytes:
    service.say(STATUS)
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "plimsoll_client.cli", "quota", "status", "acme", "--url", service.url]
    inherited = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "NO_COLOR")}
    environ = {**inherited, "TERM": "xterm-256color", "COLUMNS": "160", **environment}
    process = subprocess.Popen(command, stdout=follower, stderr=subprocess.DEVNULL, env=environ)
    os.close(follower)
    out = b""
    try:
        while chunk := os.read(leader, 65536):
            out += chunk
    except OSError:  # how a terminal says that the other side has closed it
        pass
    os.close(leader)
    assert process.wait() == 0
    return out


def test_colours_are_for_terminals_that_want_them(service: Canned) -> None:
    assert b"\x1b[" in _in_a_terminal(service)
    assert b"\x1b[3" not in _in_a_terminal(service, NO_COLOR="1")
    assert b"\x1b[" not in _in_a_terminal(service, TERM="dumb")


def test_a_terminal_without_unicode_gets_plain_bars(service: Canned) -> None:
    out = _in_a_terminal(service, PYTHONIOENCODING="ascii", NO_COLOR="1")
    assert out.isascii()
    assert b"############" in out


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_closed_pipe_is_no_traceback(service: Canned, output: str) -> None:
    service.say({"scopes": [f"t{number}" for number in range(50_000)]})
    command = f"{sys.executable} -m plimsoll_client.cli quota list -o {output} --url {service.url} | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)  # noqa: S602  ours
    assert done.stdout in ("t0\n", "{\n")
    assert done.stderr == ""


@pytest.mark.parametrize("output", ["table", "json", "csv"])
def test_a_full_disk_is_no_traceback(service: Canned, output: str) -> None:
    service.say({"scopes": ["acme"]})
    command = f"{sys.executable} -m plimsoll_client.cli quota list -o {output} --url {service.url} > /dev/full"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)  # noqa: S602  ours
    assert done.returncode == 1
    assert done.stderr == "error: the output could not be written: No space left on device\n"


def test_a_context_file_that_is_no_object_is_said_to_be_none(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "context.json").write_text("[]")
    monkeypatch.setenv("PLIMSOLL_CONTEXT", str(tmp_path / "context.json"))
    assert run(["context"]) == 1
    assert "cannot be read: it is no JSON object" in capsys.readouterr().err
