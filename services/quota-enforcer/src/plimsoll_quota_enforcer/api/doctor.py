"""What is wrong: the checks of the doctor one after the other, each in bounded time, causes before symptoms."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query

from plimsoll_contracts import codes
from plimsoll_contracts.doctor import CHECKS, Diagnosis, Finding, Verdict, found, not_looked_at
from plimsoll_contracts.topics import CATALOGUE
from plimsoll_quota_enforcer import __version__
from plimsoll_quota_enforcer.api.access import administers
from plimsoll_quota_enforcer.api.parts import Given
from plimsoll_quota_enforcer.storage import doctor, refold
from plimsoll_quota_enforcer.storage.doctor import Examined, counted, graded, lasting, listed
from plimsoll_quota_enforcer.storage.queries import QUERIES
from plimsoll_runtime.http import Problem
from plimsoll_streams import backlog, kafka
from plimsoll_streams.records import Partition

CHECK_SECONDS = 3.0
"""For one check; a broker or a database that is frozen takes all of it, once."""
ALL_SECONDS = 9.0
"""For all of them: less than the command's own patience."""
FOLD_SECONDS = 2.0
LAG_WARN_SECONDS, LAG_FAIL_SECONDS = 10.0, 60.0
STALL_WARN_SECONDS, STALL_FAIL_SECONDS = 30.0, 120.0
SLOW_SECONDS = 1.0

SERVED = tuple(check for check in CHECKS if not check.is_local)

router = APIRouter(dependencies=[administers])


Only = Annotated[list[str] | None, Query(max_length=len(CHECKS))]


@router.get("/doctor")
async def examine(parts: Given, only: Only = None) -> Diagnosis:
    """Look at the service, its database and its broker; answers within ten seconds, however things are."""
    names = [check.name for check in SERVED]
    if unknown := [name for name in only or () if name not in names]:
        raise Problem(codes.NOT_FOUND, f"there is no check {unknown[0]!r}: one of {', '.join(names)}")
    examined = parts.examined
    until = time.monotonic() + ALL_SECONDS
    findings: list[Finding] = []
    for name in _with_needs(only or names):
        findings.append(await _look(name, examined, findings, until))
    wanted = [each for each in findings if only is None or each.check in only or each.verdict is Verdict.FAIL]
    instance = str(examined.status()["instance"])
    return Diagnosis(
        service="quota-enforcer",
        version=__version__,
        instance=instance,
        findings=tuple(wanted),
        as_of=datetime.now(UTC),
    )


def _with_needs(names: list[str]) -> list[str]:
    """Return these checks and all that they need, in order."""
    wanted = set(names)
    for check in reversed(SERVED):  # what is needed stands before
        if check.name in wanted:
            wanted |= set(check.needs)
    return [check.name for check in SERVED if check.name in wanted]


async def _look(name: str, examined: Examined, before: list[Finding], until: float) -> Finding:
    skipped = not_looked_at(name, before)
    if skipped is not None:
        return skipped
    seconds = max(0.0, min(CHECK_SECONDS, until - time.monotonic()))
    # Not awaited once its time is up: a session with a frozen server takes long to give back.
    task = asyncio.create_task(_check(name, examined))
    _running.add(task)
    task.add_done_callback(_ended)
    await asyncio.wait({task}, timeout=seconds)
    if not task.done():
        task.cancel()
        return _no_answer(name, f"within {seconds:.1f} s")
    if (error := task.exception()) is not None:
        # The kind of error only: a driver's message may carry an address or a password.
        return _no_answer(name, f"({type(error).__name__})")
    return task.result()


_running: set[asyncio.Task[Finding]] = set()


def _ended(task: asyncio.Task[Finding]) -> None:
    _running.discard(task)
    if not task.cancelled():
        task.exception()  # looked at, so that nobody logs it as forgotten


def _no_answer(name: str, why: str) -> Finding:
    verdict = Verdict.FAIL if name in ("database", "broker") else Verdict.UNKNOWN
    return found(name, verdict, f"no answer {why}")


async def _check(name: str, examined: Examined) -> Finding:
    if name in doctor.CHECKS:
        async with examined.pool.acquire() as connection:
            return await doctor.CHECKS[name](connection, examined)
    return await _OTHERS[name](examined)


async def _broker(examined: Examined) -> Finding:
    began = time.monotonic()
    count = await kafka.brokers(examined.bootstrap)
    took = time.monotonic() - began
    told = f"{counted(count, 'broker')} answered in {took * 1000:.0f} ms"
    return found("broker", graded(took, SLOW_SECONDS, float("inf")), told)


async def _topics(examined: Examined) -> Finding:
    problems = await kafka.check_topics(examined.bootstrap, CATALOGUE)
    if problems:
        return found("topics", Verdict.FAIL, f"{counted(len(problems), 'difference')}: {listed(problems)}")
    return found("topics", Verdict.OK, f"{counted(len(CATALOGUE), 'topic')} as declared")


async def _lag(examined: Examined) -> Finding:
    rows = await examined.pool.fetch(QUERIES["doctor_offsets"])
    offsets = {Partition(row["topic"], row["partition"]): row["next_offset"] for row in rows}
    topics = await backlog.unread(examined.bootstrap, offsets)
    behind = {name: each for name, each in topics.items() if each.records}
    if not behind:
        return found("lag", Verdict.OK, f"{counted(len(topics), 'topic')}, nothing unread")
    ages = {name: time.time() - each.oldest_ms / 1000 for name, each in behind.items() if each.oldest_ms is not None}
    oldest = max(ages.values(), default=0.0)
    told = [f"{each.records:,} of {name}" for name, each in behind.items()]
    age = f"the oldest for {lasting(max(oldest, 0.0))}" if ages else "the oldest of unknown age"
    return found("lag", graded(oldest, LAG_WARN_SECONDS, LAG_FAIL_SECONDS), f"unread: {listed(told)}, {age}")


async def _stopped(examined: Examined) -> Finding:
    status = examined.status()
    partitions: Mapping[str, Mapping[str, Any]] = status["partitions"]
    ended = {name: each for name, each in partitions.items() if each["phase"] in ("paused", "refused")}
    if ended:
        told = [f"{name} {each['phase']}: {each['why']}" for name, each in ended.items()]
        return found("stopped", Verdict.FAIL, f"{counted(len(ended), 'partition')} not read on: {listed(told)}")
    waiting = [name for name, each in partitions.items() if each["phase"] != "owned"]
    told_all = f"{counted(len(partitions), 'partition')} of {status['instance']}"
    if waiting:
        return found("stopped", Verdict.WARN, f"{len(waiting)} of {told_all} not owned yet: {listed(waiting)}")
    return found("stopped", Verdict.OK, f"{told_all}, all read on")


async def _progress(examined: Examined) -> Finding:
    status = examined.status()
    away = [name for name in ("database", "broker") if status.get(f"{name}_away")]
    if away:
        return found("progress", Verdict.WARN, f"{status['instance']} waits for {' and '.join(away)}")
    stalled = float(status.get("stalled_seconds", 0.0))
    told = f"{status['instance']} has not got on for {lasting(stalled)}" if stalled else f"{status['instance']} gets on"
    return found("progress", graded(stalled, STALL_WARN_SECONDS, STALL_FAIL_SECONDS), told)


async def _usage(examined: Examined) -> Finding:
    return await refold.usage(examined, FOLD_SECONDS)


async def _nodes(examined: Examined) -> Finding:
    return await refold.nodes(examined, FOLD_SECONDS)


_OTHERS: Mapping[str, Callable[[Examined], Awaitable[Finding]]] = {
    "broker": _broker,
    "topics": _topics,
    "lag": _lag,
    "stopped": _stopped,
    "progress": _progress,
    "usage": _usage,
    "nodes": _nodes,
}
