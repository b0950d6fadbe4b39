"""A service that gives canned answers over loopback, for what the command asks and prints."""

from dataclasses import dataclass, field
from typing import Any

from plimsoll_client.cli.__main__ import run
from plimsoll_contracts.codes import Code


@dataclass
class Canned:
    """A service that gives the next answer, and remembers what it was asked."""

    url: str = ""
    delay: float = 0.0
    """Seconds before each answer."""
    answers: list[tuple[int, Any]] = field(default_factory=list)
    asked: list[tuple[str, str, Any]] = field(default_factory=list)

    def say(self, body: Any, status: int = 200) -> None:
        self.answers.append((status, body))

    def refuse(self, code: Code, detail: str = "") -> None:
        self.say(
            {"type": "x", "title": code.title, "status": code.status, "code": code.code, "detail": detail,
             "remedy": code.remedy},
            code.status,
        )  # fmt: skip


def plimsoll(service: Canned, command: str) -> int:
    return run([*command.split(), "--url", service.url])
