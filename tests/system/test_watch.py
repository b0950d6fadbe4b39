"""A command that is shown again and again: on a terminal, through a pipe, while the service goes and comes."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from plimsoll_client.cli.__main__ import run
from plimsoll_devkit.loopback import Handler, serving


@dataclass
class Service:
    """Lists tenants; each answer has one more, and it may be away."""

    url: str = ""
    is_away: bool = False
    tenants: list[str] = field(default_factory=list)


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()

    class Answers(Handler):
        def respond(self) -> None:
            made.tenants.append(f"tenant-{len(made.tenants)}")
            body = json.dumps({"scopes": made.tenants}).encode()
            self.answer(503 if made.is_away else 200, body)

    with serving(Answers) as url:
        made.url = url
        yield made


def until(check: Callable[[], object], seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def watching(service: Service, *options: str, **streams: object) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "plimsoll_client.cli", "quota", "list", "--watch", "0.2", *options]
    environ = {**os.environ, "TERM": "xterm", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen([*command, "--url", service.url], env=environ, **streams)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("output", ["table", "json", "csv"])
def test_a_pipe_gets_block_after_block_and_ctrl_c_ends_it_well(service: Service, output: str) -> None:
    process = watching(service, "-o", output, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until(lambda: len(service.tenants) >= 3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert (process.returncode, err) == (0, b"")
    assert b"\x1b" not in out
    text = out.decode()
    if output == "json":
        answers = [json.loads(line) for line in text.splitlines()]
        assert [len(answer["scopes"]) for answer in answers[:2]] == [1, 2]
    else:
        blocks = [block.removeprefix("scope\n").splitlines() for block in text.split("\n\n") if block]
        assert blocks[:2] == [["tenant-0"], ["tenant-0", "tenant-1"]]


def test_a_service_that_goes_away_is_said_and_waited_for(service: Service) -> None:
    process = watching(service, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until(lambda: service.tenants)
    service.is_away, before = True, len(service.tenants)
    until(lambda: len(service.tenants) >= before + 2)
    service.is_away, before = False, len(service.tenants)
    until(lambda: len(service.tenants) >= before + 2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert process.returncode == 0
    assert b"answered 503; trying again every 0.2 s" in err
    assert f"tenant-{before}".encode() in out


def test_a_service_that_was_never_there_is_not_waited_for(service: Service) -> None:
    service.is_away = True
    assert run(["quota", "list", "--watch", "--url", service.url]) == 8


def test_a_terminal_is_redrawn_in_place_and_given_back(service: Service) -> None:
    leader, follower = pty.openpty()
    process = watching(service, stdout=follower, stderr=subprocess.DEVNULL)
    os.close(follower)
    until(lambda: len(service.tenants) >= 3)
    service.is_away, before = True, len(service.tenants)
    until(lambda: len(service.tenants) >= before + 2)
    process.send_signal(signal.SIGINT)
    out = b""
    try:
        while chunk := os.read(leader, 65536):
            out += chunk
    except OSError:  # how a terminal says that the other side has closed it
        pass
    os.close(leader)
    assert process.wait(10) == 0
    frames = out.split(b"\x1b[H")
    assert len(frames) >= 4
    assert b"\x1b[2J" not in out, "a cleared screen flickers"
    assert all(b"\x1b[J" in frame and b"tenant-0\x1b[K" in frame for frame in frames[1:])
    assert b"every 0.2 s, " in frames[1]
    assert b"trying again" in frames[-1]
    assert out.rstrip().endswith(b"\x1b[?25h")


@pytest.mark.parametrize(
    "words",
    ["quota set acme cpu=4 --watch", "quota list --watch 0.01", "quota list --watch=never", "dlq replay 7 --watch 2"],
)
def test_what_cannot_be_watched(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words.split(), "--url", "http://127.0.0.1:9"]) == 2
    assert "watch" in capsys.readouterr().err.lower()
