"""How much processor time does each party take: on a machine that others use too, wall time says little."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def spent(pids: Mapping[str, int]) -> dict[str, float]:
    """Return the seconds that each process and its children have used so far; one that is gone counts nothing."""
    return {name: sum(_own(each) for each in _family(pid)) for name, pid in pids.items()}


def _family(pid: int) -> Iterable[int]:
    yield pid
    try:
        tasks = [task.joinpath("children").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return
    for child in " ".join(tasks).split():
        yield from _family(int(child))


def _own(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS
