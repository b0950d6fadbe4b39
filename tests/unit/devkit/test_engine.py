"""What is said to Docker Compose. No engine runs where this was written: only the words are checked here."""

from pathlib import Path

import pytest

from plimsoll_devkit.stack import containers, engine, health
from plimsoll_devkit.stack.context import Layout, read_json

FAKE = """#!/bin/sh
echo "$@" PORT=$PLIMSOLL_PORT_KAFKA >> {log}
"""


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program named docker that writes down what it was told."""
    log, program = tmp_path / "said", tmp_path / "docker"
    program.write_text(FAKE.format(log=log))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(containers, "engine_answers", lambda: True)
    return log


def test_up_waits_for_each_health_check_and_down_remembers(
    said: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, waited = Layout(tmp_path / "stack"), []

    async def wait(_check: object, seconds: float, _alive: object) -> None:
        waited.append(seconds)

    monkeypatch.setattr(health, "wait", wait)
    assert engine.chosen(layout)
    assert engine.up(layout, ["kafka", "topics", "quota-enforcer"]) == 0
    assert waited == [60.0, 30.0]
    port = read_json(layout.ports_file)["kafka"]
    words = said.read_text().splitlines()[-1]
    assert words.endswith(f"compose.yaml up --build --detach kafka topics quota-enforcer PORT={port}")

    monkeypatch.setattr(containers, "engine_answers", lambda: False)
    assert engine.chosen(layout), "what the engine started is ended by it"
    engine.down(layout, volumes=True)
    assert said.read_text().splitlines()[-1].endswith(f"down --volumes PORT={port}")
    assert not engine.chosen(layout)


def test_local_processes_are_chosen_where_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIMSOLL_STACK", "local")
    assert not engine.chosen(Layout(tmp_path))
