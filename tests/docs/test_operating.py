"""What the page on operating tells to type can be typed, and the exit codes it tells are the command's."""

import re
from pathlib import Path

import pytest

from plimsoll_client.cli.__main__ import app
from plimsoll_client.cli.failures import Exit

TEXT = (Path(__file__).parents[2] / "docs" / "operating.md").read_text(encoding="utf-8")
TYPED = sorted(set(re.findall(r"`plimsoll ([^`]+)`", TEXT)))


@pytest.mark.parametrize("words", TYPED)
def test_a_command_can_be_typed(words: str) -> None:
    plain = re.sub(r"-o \w+|--url \S+|--token-file \S+|--watch", "", words).split()
    app.parse_args(plain, exit_on_error=False, print_error=False)


def test_there_are_commands() -> None:
    assert len(TYPED) >= 12


def test_the_exit_codes_of_the_doctor_are_told() -> None:
    told = {int(code) for code in re.findall(r"^\| (\d) \|", TEXT, re.MULTILINE)}
    assert told == {Exit.OK, Exit.ERROR, Exit.DEGRADED, Exit.AUTH, Exit.UNREACHABLE}
