import pytest

from plimsoll_devkit.transcript import Step, differs, steps

PAGE = """
# A page

```console
$ one --two
first
...
$ export X=1
```

```text
$ not this
```

```console
$ three
```
"""


def test_commands_and_what_they_print_are_found_in_order() -> None:
    assert steps(PAGE) == [Step("one --two", ("first", "...")), Step("export X=1", ()), Step("three", ())]


def test_a_block_without_a_command_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="no command"):
        steps("```console\nprinted\n```\n")


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        (("as it is",), "as it is\n"),
        (("ends in any way ...",), "ends in any way 17\n"),
        (("...", "last"), "first\nsecond\nlast\n"),
        (("first", "..."), "first\n"),
        (("limit 4 (alice, 2h ago)",), "limit 4 (alice, 13s ago)\n"),
        (("http  127.0.0.1:8080",), "http      127.0.0.1:43211   \n"),
        ((), ""),
    ],
)
def test_what_varies_is_no_difference(expected: tuple[str, ...], printed: str) -> None:
    assert differs(expected, printed) == ""


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        (("limit 4",), "limit 5\n"),
        (("first",), "first\nmore\n"),
        (("first", "second"), "first\n"),
        (("...", "last"), "last\nmore\n"),
        (("first", "...", "last"), "last\nfirst\n"),
        ((), "something\n"),
    ],
)
def test_everything_else_is(expected: tuple[str, ...], printed: str) -> None:
    assert differs(expected, printed)
