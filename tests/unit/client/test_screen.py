"""The last wall before the terminal, and tables in less room than they need."""

import pytest
from rich.console import Group
from rich.text import Text

from plimsoll_client.cli.render import table
from plimsoll_client.cli.screen import write
from plimsoll_client.cli.session import Session


def test_what_a_command_forgot_to_make_safe_is_made_safe_at_the_wall(capsys: pytest.CaptureFixture[str]) -> None:
    drawn = table("NAME")
    drawn.add_row("cell \x1b[2J")
    write(Group(Text("text \u202e"), drawn), stderr=False)
    Session().say("remark \x9b")
    out, err = capsys.readouterr()
    assert [line.rstrip() for line in out.splitlines()] == ["text \\u202e", "NAME", "cell \\x1b[2J"]
    assert err == "remark \\x9b\n"


def test_a_row_that_has_no_room_is_a_paragraph(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = table("SCOPE", "USED", "DETAIL", right=("USED",))
    drawn.add_row("acme/env:production", "1234567m", "as it was")
    for columns, lines in (
        ("60", ["SCOPE                    USED  DETAIL", "acme/env:production  1234567m  as it was"]),
        ("30", ["SCOPE acme/env:production", "  USED 1234567m  DETAIL as it", "  was"]),
    ):
        monkeypatch.setenv("COLUMNS", columns)
        write(drawn, stderr=False)
        assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == lines
