"""What the doctor finds from here, where the service cannot be asked; and that its advice can be followed."""

import base64
import json
import re
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from plimsoll_client.cli.__main__ import app, run
from plimsoll_client.cli.api import Api
from plimsoll_client.cli.failures import CommandFailed, Exit
from plimsoll_contracts.doctor import CHECKS, Finding, Verdict, found, not_looked_at
from plimsoll_devkit.stack.credentials import Credentials

ROOT = Path(__file__).parents[3]


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "context.json"
    monkeypatch.setenv("PLIMSOLL_CONTEXT", str(file))
    return file


def findings(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, str]]:
    return {each["check"]: each for each in json.loads(capsys.readouterr().out)["findings"]}


def test_without_an_address_nothing_else_is_looked_at(context: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "-o", "json"]) == 8
    told = findings(capsys)
    assert list(told) == [check.name for check in CHECKS]
    assert (told["address"]["verdict"], str(context) in told["address"]["told"]) == ("fail", True)
    assert {each["verdict"] for name, each in told.items() if name != "address"} == {"unknown"}
    assert told["service"]["told"] == "not looked at: address comes first"


def test_a_service_that_is_away_is_told_after_the_part_that_is(
    context: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as database:
        at = database.getsockname()[1]
        places = {"http": "http://127.0.0.1:9", "kafka": "127.0.0.1:9", "postgres": f"postgresql://me@127.0.0.1:{at}/x"}
        context.write_text(json.dumps(places))
        assert run(["doctor", "-o", "json"]) == 8
    told = findings(capsys)
    assert list(told)[:5] == ["address", "parts", "token", "service", "database"]
    assert told["parts"]["verdict"] == "fail"
    assert told["parts"]["told"] == (
        f"kafka at 127.0.0.1:9 does not accept connections (Connection refused), "
        f"postgres at 127.0.0.1:{at} accepts connections"
    )
    assert told["parts"]["next"] == "make status"
    assert told["service"]["verdict"] == "fail"
    assert told["usage"]["told"] == "not looked at: the service was not asked"


def test_whoever_is_not_let_in_ends_with_7(
    context: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    context.write_text('{"http": "http://127.0.0.1:9"}')

    def refuse(*_: object) -> None:
        raise CommandFailed(Exit.AUTH, "X403101SCOMIS  quota:admin is missing", "give one with that scope")

    monkeypatch.setattr(Api, "diagnosis", refuse)
    assert run(["doctor", "-o", "json"]) == 7
    told = findings(capsys)
    assert (told["service"]["verdict"], told["service"]["next"]) == ("fail", "give one with that scope")
    assert told["usage"]["verdict"] == "unknown"


def test_only_the_check_asked_for_and_what_has_failed(context: Path, capsys: pytest.CaptureFixture[str]) -> None:
    context.write_text('{"http": "http://127.0.0.1:9"}')
    assert run(["doctor", "--only", "lag", "-o", "json"]) == 8
    assert list(findings(capsys)) == ["service", "lag"]
    assert run(["doctor", "--only", "lagg"]) == 2
    assert "there is no check 'lagg'" in capsys.readouterr().err


def test_hints_alone_are_data(context: Path, capsys: pytest.CaptureFixture[str]) -> None:
    context.write_text('{"http": "http://127.0.0.1:9", "kafka": "127.0.0.1:9"}')
    assert run(["doctor", "--only", "parts", "--fix-hint"]) == 8
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "make status"
    assert err == ""


@pytest.mark.parametrize(
    ("holds", "verdict", "says"),
    [("2h", "ok", "the token of bob holds for 1h more"), ("5m", "warn", "the token of bob holds for 4m more")],
)
def test_a_token_says_for_how_long_it_holds(
    context: Path, capsys: pytest.CaptureFixture[str], holds: str, verdict: str, says: str
) -> None:
    credentials = Credentials(context.parent / "credentials")
    credentials.make()
    context.write_text(json.dumps({"http": "http://127.0.0.1:9", **credentials.context()}))
    assert run(["token", "--tenant", "acme", "--subject", "bob", "--for", holds]) == 0
    credentials.token_file.write_text(capsys.readouterr().out)
    assert run(["doctor", "--only", "token", "-o", "json"]) == 8
    token = findings(capsys)["token"]
    assert (token["verdict"], token["told"]) == (verdict, says)


def test_a_token_that_has_expired_or_is_none(
    context: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    context.write_text('{"http": "http://127.0.0.1:9"}')
    expired = base64.urlsafe_b64encode(json.dumps({"exp": time.time() - 7300, "sub": "bo\x1bb"}).encode()).decode()
    for token, told in (
        (f"x.{expired.rstrip('=')}.x", "the token of bo\\x1bb expired 2h ago"),
        ("rubbish", "there is one, and it does not say until when it holds"),
    ):
        monkeypatch.setenv("PLIMSOLL_TOKEN", token)
        run(["doctor", "--only", "token"])
        out = capsys.readouterr().out
        assert told in out
        assert "next: plimsoll token --help" in out
    assert run(["doctor", "--only", "token", "--token-file", "/nowhere"]) == 7
    assert "the token in /nowhere cannot be read" in capsys.readouterr().out


def test_what_needs_something_that_has_failed_is_not_looked_at() -> None:
    before = [found("database", Verdict.WARN, "slow")]
    assert not_looked_at("migrations", before) is None
    before = [found("database", Verdict.FAIL, "gone")]
    told = not_looked_at("migrations", before)
    assert told is not None
    assert (told.verdict, told.told, told.next) == (Verdict.UNKNOWN, "not looked at: database comes first", "")
    further = not_looked_at("days", [*before, told])
    assert further is not None
    assert further.told == "not looked at: database comes first", "the cause, not what it keeps from being looked at"
    assert not_looked_at("broker", before) is None


def test_a_finding_that_is_ok_asks_for_nothing() -> None:
    assert found("lag", Verdict.OK, "fine").next == ""
    assert found("lag", Verdict.WARN, "late").next.endswith("StreamLagHigh.md")
    assert found("lag", Verdict.WARN, "late", "wait") == Finding(
        check="lag", verdict=Verdict.WARN, told="late", next="wait"
    )


def test_causes_come_before_what_needs_them() -> None:
    for place, check in enumerate(CHECKS):
        assert set(check.needs) <= {before.name for before in CHECKS[:place]}, check


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_the_advice_can_be_followed(check: Any) -> None:
    page, _, anchor = check.next.partition("#")
    if page.endswith(".md"):
        text = (ROOT / page).read_text()
        assert not anchor or re.search(rf"^#+ {anchor}$", text, re.MULTILINE | re.IGNORECASE), check.next
    elif check.next.startswith("plimsoll "):
        app.parse_args(check.next.split()[1:], exit_on_error=False, print_error=False)
    elif check.next.startswith("make "):
        assert re.search(rf"^{check.next.split()[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    else:
        assert check.next.split()[0] in {"python", "psql", "timedatectl"}
