"""`make demo`: as expected in time, nothing left behind, and an interrupt at any moment cleans up too."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from plimsoll_devkit.demo.__main__ import FOLDER
from plimsoll_devkit.stack.context import ROOT
from plimsoll_devkit.stack.process import descendants, start_time
from plimsoll_devkit.transcript import differs, steps

DEMO = [sys.executable, "-m", "plimsoll_devkit.demo"]
SECONDS = 90
IN_README = next(step for step in steps((ROOT / "README.md").read_text()) if step.command == "make demo")


@pytest.fixture
def environment() -> dict[str, str]:
    return {**os.environ, "PLIMSOLL_STACK": "local"}


def left_behind(pid: int) -> list[Path]:
    return list(FOLDER.glob(str(pid)))


@pytest.mark.timeout(150)
def test_the_demo_sees_what_the_readme_shows(environment: dict[str, str]) -> None:
    began = time.monotonic()
    with subprocess.Popen(
        DEMO, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        output, _ = process.communicate(timeout=140)
    took = time.monotonic() - began

    assert process.returncode == 0, output
    assert took < SECONDS, f"{took:.0f} s\n{output}"
    assert left_behind(process.pid) == []
    if "no Prometheus here" in output:
        pytest.skip("the alert cannot fire without a real Prometheus: apt-get install prometheus brings it")
    assert differs(IN_README.expected, output) == ""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("line", [" s  parts", "1. Billing says", "2. "])
def test_an_interrupt_stops_what_was_started(environment: dict[str, str], line: str) -> None:
    with subprocess.Popen(
        DEMO, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        for said in process.stdout:
            if line in said:
                break
        started = {pid: start_time(pid) for pid in descendants(process.pid)}
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=40)

    assert process.returncode == 130, output
    assert "Exception ignored" not in output
    assert output.endswith("interrupted: everything that was started is stopped\n")
    assert started, "it had started something by then"
    assert [pid for pid, began in started.items() if start_time(pid) == began] == []
    assert left_behind(process.pid) == []


@pytest.mark.timeout(60)
def test_a_reader_that_goes_away_stops_it_without_a_traceback(environment: dict[str, str]) -> None:
    """`make demo | head -3`."""
    with subprocess.Popen(DEMO, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()

    assert process.returncode == 1, said
    assert said == ""
    assert left_behind(process.pid) == []
