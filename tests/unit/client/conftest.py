"""Lets test files import what lies beside them, and serves canned answers."""

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.unit.client.canned import Canned

from plimsoll_devkit.loopback import Handler, serving


@pytest.fixture
def service() -> Iterator[Canned]:
    canned = Canned()

    class Answers(Handler):
        def respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            canned.asked.append((self.command, self.path, json.loads(body) if body else None))
            status, answer = canned.answers.pop(0)
            threading.Event().wait(canned.delay)
            encoded = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.answer(status, encoded)

    with serving(Answers) as url:
        canned.url = url
        yield canned
