"""How often does Python look for cycles: rarely, in a process whose values have none and whose caches are large."""

import gc

YOUNG = 100_000
"""New objects between two looks. Python's own 700 made a third of the enforcer's time go into looking."""


def collect_rarely() -> None:
    """Leave out what the process was built of, and look at the rest rarely; call once, when all is wired."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 20, 20)
