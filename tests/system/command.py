"""How do these tests run ``plimsoll`` as an operator does?"""

import asyncio
import subprocess
import sys
from dataclasses import dataclass

from plimsoll_devkit.platform import Platform


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


async def plimsoll(running: Platform, *arguments: str) -> Done:
    command = [sys.executable, "-m", "plimsoll_client.cli", *arguments, "--url", running.enforcer().url]
    command += ["--token-file", str(running.stack.credentials.token_file)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=30, check=False)
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    return Done(done.returncode, done.stdout, done.stderr)
