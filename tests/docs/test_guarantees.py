"""docs/guarantees.md is complete: every promise has rows, and every row a test or what will bring it."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
PROMISES = (
    "No reserve allowed in enforce mode takes used + held above a limit",
    "No loss, no doubling",
    "Usage equals the truth",
    "Every tick of every schedule is accounted for exactly once",
    "Every fail-open is counted, and its alert fires",
    "Nobody sees or changes what is another's",
)
LATER = re.compile(r"later: [a-z -]+")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows(promise: int) -> list[list[str]]:
    """The cells of each row under a promise, without the heading."""
    section = PAGE.split(f"## {promise}. ")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@cache
def named_in(path: Path) -> set[str]:
    """Names of the tests at the top of a file."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    functions = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    return {name for name in functions if name.startswith("test_")}


def test_the_promises_are_all_there_and_in_order() -> None:
    assert re.findall(r"^## \d+\. (.*)$", PAGE, re.MULTILINE) == list(PROMISES)
    assert [int(number) for number in re.findall(r"^## (\d+)\. ", PAGE, re.MULTILINE)] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("promise", range(1, len(PROMISES) + 1), ids=PROMISES)
def test_a_promise_has_rows_that_are_proved_or_come_later(promise: int) -> None:
    found = rows(promise)
    assert found
    for what, how, proof in found:
        assert what
        if LATER.fullmatch(proof):
            continue
        assert how, f"by which mechanism: {what}"
        named = TEST.findall(proof)
        assert TEST.sub("", proof).strip(" ,") == "", f"neither a test nor what will bring one: {proof}"
        assert named, f"nothing proves: {what}"
        missing = [f"{path}::{test}" for path, test in named if not _exists(ROOT / path, test)]
        assert missing == []


def _exists(path: Path, test: str) -> bool:
    return path.is_file() and test in named_in(path)
