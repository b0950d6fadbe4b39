"""Do the console blocks of a page show what their commands print?"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ANYTHING = "..."
# What differs from run to run and from machine to machine, written alike on both sides before they are compared.
_VARYING = (
    (re.compile(r"\b\d+[smhd] ago\b"), "AGE"),
    (re.compile(r"\b127\.0\.0\.1:(?:\d+|\.\.\.)"), "ADDRESS"),
    (re.compile(r"\b\d+\.\d+ s\b"), "SECONDS"),
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)"), "TIME"),
    (re.compile(r" {2,}"), "  "),
)


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a page and the lines that it should print. A line `...` stands for any number of lines."""

    command: str
    expected: tuple[str, ...]


def steps(page: str) -> list[Step]:
    """Every command in the console blocks of a page, in their order."""
    found: list[Step] = []
    for block in _BLOCK.findall(page):
        command = ""
        lines: list[str] = []
        for line in block.splitlines():
            if line.startswith("$ "):
                if command:
                    found.append(Step(command, tuple(lines)))
                command, lines = line[2:], []
            elif not command:
                raise ValueError(f"a console block begins with no command: {line!r}")
            else:
                lines.append(line)
        found.append(Step(command, tuple(lines)))
    return found


def differs(expected: Sequence[str], printed: str) -> str:
    """Say how what was printed differs from what a page shows; empty where it does not."""
    wanted = [_plain(line) for line in expected]
    lines = [_plain(line) for line in printed.splitlines()]
    pattern = "".join(_line_pattern(line) for line in wanted)
    if re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)):
        return ""
    missing = [line for line in wanted if not any(re.fullmatch(_line_pattern(line), f"{each}\n") for each in lines)]
    return "\n".join(["expected", *wanted, "", "printed", *lines, "", "of that, nowhere printed", *missing])


def _plain(line: str) -> str:
    for pattern, name in _VARYING:
        line = pattern.sub(name, line)
    return line.rstrip()


def _line_pattern(line: str) -> str:
    if line == _ANYTHING:
        return r"(?:.*\n)*?"
    return ".*?".join(re.escape(part) for part in line.split(_ANYTHING)) + r"\n"
