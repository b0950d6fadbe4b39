"""Runs every comparison in one go and prints the table of `docs/performance.md`: `python -m plimsoll_devkit.bench`."""

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from plimsoll_devkit.bench import naive, projection
from plimsoll_devkit.bench.load import Load
from plimsoll_devkit.stack.private import PrivateStack

PARTS = ("kafka", "postgres", "migrate", "topics", "quota-enforcer")
SERVICE = "quota-enforcer"
NAIVE_CLIENTS = (8, 32)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: what was measured, what was seen, and what is promised."""

    what: str
    seen: str
    target: str = ""
    met: bool | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything one run measured."""

    many: Load
    hot: Load
    steady: Load
    echo: Load
    echo_steady: Load
    naive: float
    """Requests a second."""
    projected: float
    """Snapshots a second."""
    memory: float
    """MiB."""
    ready: float
    """Seconds."""


def say(text: str) -> None:
    """Tell how far the run is."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def load(bootstrap: str, seconds: float, *options: str) -> Load:
    """Run one load in a process of its own."""
    command = [sys.executable, "-m", "plimsoll_devkit.bench.load", bootstrap, "--seconds", str(seconds), *options]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - ours
    return Load(**json.loads(done.stdout))


@contextmanager
def echo(bootstrap: str) -> Iterator[None]:
    """A server that answers everything, for as long as the block runs."""
    command = [sys.executable, "-m", "plimsoll_devkit.bench.echo", bootstrap]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - ours
    try:
        if server.stdout is None or server.stdout.readline().strip() != "ready":
            raise RuntimeError("the echo server did not start")
        yield
    finally:
        server.terminate()
        server.wait(10)


def resident_mib(pid: int) -> float:
    """Memory of a process, in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def prepare(dsn: str) -> None:
    """Give every tenant limits to be judged by, far enough away.

    Raises:
        SystemExit: the database does not keep its promises, so that nothing is worth measuring.
    """
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "quota"})
    await naive.require_durable(connection)
    await connection.execute(
        """INSERT INTO defaults VALUES ('cpu', 1000000000, 'enforce', 1, NULL, 'bench', 'bench', now()),
        ('memory', 9007199254740991, 'enforce', 1, NULL, 'bench', 'bench', now()) ON CONFLICT DO NOTHING"""
    )
    await connection.execute("UPDATE platform SET defaults_version = defaults_version + 1")
    await connection.close()


def measure(stack: PrivateStack, seconds: float) -> Figures:
    """Run the comparisons one after the other on one stack."""
    bootstrap = stack.kafka_bootstrap
    asyncio.run(prepare(stack.database.admin_dsn))
    say("ours: 1,000 tenants, 1,000 calls in flight")
    parties = {"enforcer": SERVICE, "PostgreSQL": "postgres", "broker": "kafka"}
    many = load(bootstrap, seconds, *(f"--watch={who}={stack.pid(part)}" for who, part in parties.items()))
    say(f"  {many.rate:,.0f}/s. One hot tenant")
    hot = load(bootstrap, seconds, "--tenants", "1")
    say(f"  {hot.rate:,.0f}/s. 500 calls a second")
    steady = load(bootstrap, seconds, "--rate", "500")
    memory = resident_mib(stack.pid(SERVICE))
    say(f"  p50 {steady.p50:.1f} ms, {memory:.0f} MiB. From start to ready")
    stack.stop(SERVICE)
    started = time.perf_counter()
    stack.start(SERVICE)
    ready = time.perf_counter() - started
    say(f"  {ready:.1f} s. Projections")
    projected = projection.rate(stack)
    stack.stop(SERVICE)
    say(f"  {projected:,.0f}/s. The bare echo")
    with echo(bootstrap):
        bare = load(bootstrap, seconds)
        bare_steady = load(bootstrap, seconds, "--rate", "500")
    say(f"  {bare.rate:,.0f}/s, p50 {bare_steady.p50:.1f} ms. One row at a time")
    rates = [asyncio.run(naive.rate(stack.database.dsn(), 1000, clients, seconds)) for clients in NAIVE_CLIENTS]
    say("  " + ", ".join(f"{rate:,.0f}/s with {clients}" for rate, clients in zip(rates, NAIVE_CLIENTS, strict=True)))
    return Figures(many, hot, steady, bare, bare_steady, max(rates), projected, memory, ready)


def judge(f: Figures) -> list[Row]:
    """Hold the figures against what is promised."""
    p50 = f.steady.p50 / f.echo_steady.p50
    return [
        Row("requests decided over 1,000 tenants", f"{f.many.rate:,.0f}/s"),
        Row("processor time of each, µs", ", ".join(f"{who} {micros:.0f}" for who, micros in f.many.effort.items())),
        at_least("against one row at a time", f.many.rate / f.naive, 6, f"of {f.naive:,.0f}/s"),
        at_least("against a bare echo", f.many.rate / f.echo.rate, 0.3, f"of {f.echo.rate:,.0f}/s"),
        at_least("one hot tenant against 1,000", f.hot.rate / f.many.rate, 1, f"({f.hot.rate:,.0f}/s)"),
        at_most("p50 at 500 calls a second, in p50 of the echo", p50, 3, f"({f.steady.p50:.1f} ms)"),
        Row("p99 at 500 calls a second", f"{f.steady.p99:.1f} ms, the echo's {f.echo_steady.p99:.1f} ms"),
        at_least("entitlement snapshots projected a second", f.projected, 20_000),
        at_most("memory of the enforcer after the load, MiB", f.memory, 120),
        at_most("from start to ready, s", f.ready, 3),
    ]


def at_least(what: str, seen: float, target: float, note: str = "") -> Row:
    """A figure that should not be smaller."""
    return Row(what, f"{seen:,.3g} {note}".strip(), f">= {target:,}", seen >= target)


def at_most(what: str, seen: float, target: float, note: str = "") -> Row:
    """A figure that should not be larger."""
    return Row(what, f"{seen:,.3g} {note}".strip(), f"<= {target:,}", seen <= target)


def table(rows: Sequence[Row]) -> str:
    """Lay the rows out in Markdown, under a line about the machine."""
    verdict = {True: "met", False: "**missed**", None: ""}
    lines = ["| what | seen | target | |", "|---|---|---|---|"]
    lines += [f"| {row.what} | {row.seen} | {row.target} | {verdict[row.met]} |" for row in rows]
    return "\n".join([machine(), "", *lines])


def machine() -> str:
    """Say where this ran."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    model = names[0].partition(":")[2].strip() if names else platform.machine()
    python = platform.python_version()
    return f"{os.cpu_count()} cores ({model}), Python {python}, {time.strftime('%Y-%m-%d')}; commits durable."


def main() -> int:
    """Measure and print; the exit code says whether every target was met."""
    parser = argparse.ArgumentParser(prog="python -m plimsoll_devkit.bench", description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="how long each load is measured")
    asked = parser.parse_args()
    with PrivateStack(PARTS) as stack:
        rows = judge(measure(stack, asked.seconds))
    print(table(rows))
    return 0 if all(row.met is not False for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
