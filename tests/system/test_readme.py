"""The README is true: its console blocks are run in their order, in one shell, and print what they show."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from plimsoll_devkit.stack.context import ROOT
from plimsoll_devkit.transcript import differs, steps

README = (ROOT / "README.md").read_text()
ELSEWHERE = {"make demo": "tests/system/test_demo.py"}
_END = "--end-of-command--"


class Shell:
    """One bash for all commands, so that what one exports the next one has."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env=environment,
        )

    def run(self, command: str) -> str:
        """Run a command to its end, and return what it printed on both streams."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        # The exit code is handed on, so that a page can show `echo $?`.
        self._bash.stdin.write(f"{command}\n(code=$?; echo '{_END}'; exit $code)\n")
        self._bash.stdin.flush()
        lines: list[str] = []
        for line in self._bash.stdout:
            if line.rstrip("\n").endswith(_END):
                lines.append(line.rstrip("\n").removesuffix(_END))
                break
            lines.append(line)
        return "".join(lines)

    def close(self) -> None:
        self._bash.communicate(timeout=60)


@pytest.fixture
def shell() -> Iterator[Shell]:
    # Short and not below the checkout: a stack of the reader's own may run there.
    with tempfile.TemporaryDirectory(prefix="plimsoll-readme-") as folder:
        Path(folder).chmod(0o755)  # the database runs as another user when we are root
        environment = {
            **os.environ,
            "PLIMSOLL_STACK": "local",
            "PLIMSOLL_STACK_DATA": f"{folder}/stack",
            "PLIMSOLL_CONTEXT": f"{folder}/context.json",
            "PYTHONIOENCODING": "utf-8",
        }
        opened = Shell(environment)
        try:
            yield opened
        finally:
            opened.close()
            argv = [sys.executable, "-m", "plimsoll_devkit.stack", "reset"]
            subprocess.run(argv, env=environment, check=True, stdout=subprocess.DEVNULL)


@pytest.mark.timeout(120)
def test_the_console_blocks_print_what_they_show(shell: Shell) -> None:
    if missing := [program for program in ("curl", "grep") if shutil.which(program) is None]:
        pytest.skip(f"the tour types {', '.join(missing)}: apt-get install {' '.join(missing)}")
    wrong: list[str] = []
    tour = [step for step in steps(README) if step.command not in ELSEWHERE]
    assert len(tour) > 10
    for step in tour:
        printed = shell.run(step.command)
        if difference := differs(step.expected, printed):
            wrong.append(f"$ {step.command}\n{difference}")
    assert not wrong, "\n\n".join(wrong)


def test_what_is_run_elsewhere_is_in_the_readme() -> None:
    commands = {step.command for step in steps(README)}
    assert set(ELSEWHERE) <= commands
    assert all((ROOT / path).exists() for path in ELSEWHERE.values())


def test_code_shown_is_code_that_runs() -> None:
    blocks = [part.partition("```")[0] for part in README.split("```python\n")[1:]]
    assert blocks
    examples = "".join(path.read_text() for path in sorted((ROOT / "examples").glob("*.py")))
    assert [block for block in blocks if block not in examples] == []
