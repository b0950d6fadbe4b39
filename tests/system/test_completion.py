"""What bash completes, asked of bash itself."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from plimsoll_client.cli.__main__ import run
from plimsoll_contracts.dimensions import Dimension

BASH = shutil.which("bash")
ASK = """
set -u
source "$1"
COMP_LINE="$2"; COMP_POINT=${#COMP_LINE}
IFS=$' \\t\\n'
read -ra COMP_WORDS <<< "$(sed 's/\\([:=]\\)/ \\1 /g' <<< "$COMP_LINE")"
[[ "$COMP_LINE" == *' ' ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
$(complete -p plimsoll | sed 's/.*-F \\([^ ]*\\).*/\\1/') plimsoll "${COMP_WORDS[COMP_CWORD]}" "" 2>/dev/null
printf '%s\\n' "${COMPREPLY[@]:-}"
"""


@pytest.fixture
def completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> "Completes":
    assert run(["completion", "bash"]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "plimsoll"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m plimsoll_client.cli "$@"\n')
    command.chmod(0o755)
    cache = tmp_path / "cache" / "plimsoll"
    cache.mkdir(parents=True)
    (cache / "scopes").write_text("acme\nacme/env:prod\nacme/env:dev\nacme/blog/prod\nbeta")
    return Completes(tmp_path)


class Completes:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, line: str) -> list[str]:
        assert BASH is not None
        environ = {**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
                   "XDG_CACHE_HOME": str(self.folder / "cache"), "PLIMSOLL_CONTEXT": "/nowhere"}  # fmt: skip
        command = [BASH, "-c", ASK, "bash", str(self.folder / "script"), line]
        done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False, timeout=30)
        return [word for word in done.stdout.split("\n") if word]


@pytest.mark.skipif(BASH is None, reason="there is no bash here")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("plimsoll do", ["doctor"]),
        ("plimsoll quota st", ["status"]),
        ("plimsoll quota status --ur", ["--url"]),
        ("plimsoll -o ", ["table", "json", "csv"]),
        ("plimsoll quota status be", ["beta"]),
        ("plimsoll quota status acme/", ["acme/env:prod", "acme/env:dev", "acme/blog/prod"]),
        ("plimsoll quota status acme/env:p", ["prod"]),
        ("plimsoll quota list ", ["acme", "beta"]),
        ("plimsoll quota set acme c", ["cpu="]),
        ("plimsoll quota set acme cpu=4 me", ["memory="]),
        ("plimsoll quota set --reason why de", ["defaults"]),
        ("plimsoll quota unset acme ", list(Dimension)),
        ("plimsoll doctor --only dead", ["dead-letters"]),
        ("plimsoll dlq show ", []),
        ("plimsoll quota set --shadow acme disk=1g va", ["vapps="]),
    ],
)  # fmt: skip
def test_bash_completes(completes: Completes, line: str, expected: list[str]) -> None:
    assert completes(line) == expected


def test_names_come_from_the_service_and_a_service_that_is_away_gives_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PLIMSOLL_CONTEXT", str(tmp_path / "context.json"))
    (tmp_path / "context.json").write_text(json.dumps({"http": "http://127.0.0.1:9"}))
    assert run(["--complete-words", "plimsoll quota list "]) == 0
    assert capsys.readouterr().out.strip() == ""
    assert run(["--complete-words", "plimsoll quota nothing there "]) == 0
    assert capsys.readouterr().out.strip() == ""


def test_installing_writes_the_script_and_has_bash_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run(["--install-completion", "--shell", "bash"]) == 0
    file = tmp_path / ".local/share/bash-completion/completions/plimsoll"
    assert str(file) in capsys.readouterr().out
    assert "_plimsoll_and_names" in file.read_text()
    assert str(file) in (tmp_path / ".bashrc").read_text()


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_a_script_too(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    assert "plimsoll" in capsys.readouterr().out
    assert run(["completion", "cmd.exe"]) == 2
