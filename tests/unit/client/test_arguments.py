from pathlib import Path

import pytest

from plimsoll_client.cli.arguments import read_limits, read_scope, read_scope_or_defaults
from plimsoll_client.cli.context import candidates
from plimsoll_client.cli.failures import CommandFailed, Exit
from plimsoll_contracts.scopes import Scope


def test_amounts_are_read_with_their_units() -> None:
    assert read_limits(["cpu=4", "memory=8g", "disk=unlimited", "vapps=0"]) == {
        "cpu": 4000,
        "memory": 8 << 30,
        "disk": "unlimited",
        "vapps": 0,
    }


@pytest.mark.parametrize(
    ("assignments", "message", "hint"),
    [
        (["memroy=1g"], "no dimension 'memroy'", "did you mean memory?"),
        (["gpu=1"], "no dimension 'gpu'", "cpu, memory, disk"),
        (["cpu"], "sets nothing", "DIMENSION=AMOUNT"),
        (["cpu=1", "cpu=2"], "given twice", "once"),
        (["memory=400m", "cpu=-1"], "'-1' is not an amount", "unlimited"),
        (["disk=1.5g"], "'1.5g' is not an amount", "unlimited"),
        ([], "nothing to set", "cpu=4"),
    ],
)
def test_what_is_wrong_is_named_with_what_to_try(assignments: list[str], message: str, hint: str) -> None:
    with pytest.raises(CommandFailed) as failed:
        read_limits(assignments)
    assert failed.value.code is Exit.USAGE
    assert message in failed.value.message
    assert hint in failed.value.hint


def test_scopes_and_the_defaults() -> None:
    assert read_scope("acme/blog/prod") == Scope("acme", "prod", "blog")
    assert read_scope_or_defaults("defaults") is None
    assert read_scope_or_defaults("acme/env:prod") == Scope("acme", "prod")


def test_a_roll_up_is_refused_with_the_three_forms_that_work() -> None:
    with pytest.raises(CommandFailed) as failed:
        read_scope("acme/blog")
    for form in ("acme (the tenant)", "acme/env:NAME", "acme/blog/NAME"):
        assert form in failed.value.hint


def test_a_context_that_is_named_counts_alone_and_the_nearest_comes_first() -> None:
    assert list(candidates({"PLIMSOLL_CONTEXT": "/x"}, Path("/a/b"), Path("/home/u"))) == [Path("/x")]
    assert list(candidates({}, Path("/a/b"), Path("/home/u"))) == [
        Path("/a/b/.local/context.json"),
        Path("/a/.local/context.json"),
        Path("/.local/context.json"),
        Path("/home/u/.config/plimsoll/context.json"),
    ]
