"""What every command keeps to, whichever there are: data alone on stdout, in each format, and nothing raw."""

import csv
import importlib.util
import io
import json
import re
import unicodedata
from pathlib import Path

import pytest
from pydantic import BaseModel

from plimsoll_client.cli import screen
from plimsoll_client.cli.__main__ import run
from plimsoll_client.cli.api import Api
from plimsoll_devkit.stack.credentials import Credentials

_SPEC = importlib.util.spec_from_file_location("every_command", Path(__file__).with_name("every_command.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
every = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(every)

NAMES = sorted(every.EVERY)
WITH_DATA = sorted(set(every.EVERY) - every.NO_DATA)
HOSTILE = {
    "escapes": "x\x1b[2J\x1b]0;owned\x07y",
    "lines": "x\nFORGED ok\r\nFORGED ok\u2028FORGED\x85FORGED",
    "directions": "x\u202egnp.exe\u2066y\u200f",
    "unseen": "x\u200b\u00ad\ufeff\U000e0041y",
    "markup": "[red]x[/red] :bomb: \\[",
    "a formula": "=HYPERLINK(1)",
}


class Asked:
    """A service that answers whatever it is asked, with one text wherever a text may stand."""

    def __init__(self, text: str) -> None:
        self.text = text

    def answer(self, model: type[BaseModel], *_: object, **__: object) -> BaseModel:
        answer: BaseModel = every.filled(model, self.text)
        return answer


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    credentials = Credentials(tmp_path / "credentials")
    credentials.make()
    known = {"http": "http://127.0.0.1:9", **credentials.context()}
    (tmp_path / "context.json").write_text(json.dumps(known))
    monkeypatch.setenv("PLIMSOLL_CONTEXT", str(tmp_path / "context.json"))
    (tmp_path / "quotas.yaml").write_text("scopes: {acme: {cpu: 4}}")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


def ask(name: str, text: str, monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    monkeypatch.setattr(Api, "_ask", Asked(text).answer)
    return run([*every.typed(name), *options])


def raw(text: str) -> list[str]:
    """Return the characters that could act on a terminal."""
    return [c for c in text if c != "\n" and unicodedata.category(c) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}]


def test_commands_are_found_in_the_app() -> None:
    assert {"quota status", "dlq replay", "doctor", "context"} <= set(NAMES)
    assert set(NAMES) >= every.NO_DATA


@pytest.mark.parametrize("name", NAMES)
def test_hostile_text_never_reaches_the_terminal_raw(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(name, "".join(HOSTILE.values()), monkeypatch) != 2
    out, err = capsys.readouterr()
    assert out or name in every.NO_DATA, err
    assert raw(out + err) == []
    assert not [line for line in (out + err).split("\n") if line.startswith("FORGED")]
    assert "[red]" in out or not {"red", ":bomb:", "\N{BOMB}"} & set(out.split()), "markup is text"


@pytest.mark.parametrize("name", WITH_DATA)
def test_json_is_one_document_in_ascii_and_nothing_else(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ask(name, HOSTILE["directions"], monkeypatch, "-o", "json")
    out = capsys.readouterr().out
    assert out.isascii()
    assert isinstance(json.loads(out), dict)


@pytest.mark.parametrize("hostile", ["a formula", "lines"])
@pytest.mark.parametrize("name", WITH_DATA)
def test_csv_is_rows_of_one_width_without_formulas(
    name: str, hostile: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ask(name, HOSTILE[hostile], monkeypatch, "-o", "csv")
    out = capsys.readouterr().out
    head, *rows = csv.reader(io.StringIO(out))
    assert rows, f"{name} has a line of data at least"
    assert {len(row) for row in rows} == {len(head)}
    assert len(set(head)) == len(head)
    assert out.count("\n") == len(rows) + 1, "a line each, whatever stands in it"
    assert not [cell for row in rows for cell in row if cell.startswith("=")]


@pytest.mark.parametrize("name", WITH_DATA)
def test_a_narrow_terminal_loses_no_figure(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ask(name, "mark", monkeypatch)
    wide = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "24")
    ask(name, "mark", monkeypatch)
    narrow = capsys.readouterr().out

    squeezed = "".join(narrow.split())
    # How long something took is another time another.
    lost = [word for word in wide.split() if word.isascii() and word not in squeezed]
    assert [word for word in lost if not re.fullmatch(r"[0-9]+\.[0-9]", word)] == []


@pytest.mark.parametrize("name", NAMES)
def test_what_only_shows_may_be_watched_and_nothing_else(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(screen, "watch", lambda *_: 0)  # it would go on for ever
    changes = {"quota set", "quota unset", "quota apply", "dlq replay", "token"}
    changes |= {f"limits requests {verb}" for verb in ("ask", "approve", "reject")}
    if getattr(every.EVERY[name], "is_watchable", False):
        assert name not in changes
        return
    assert run([*every.typed(name), "--watch"]) == 2
    assert "--watch" in capsys.readouterr().err
