"""How often does Python look for cycles: rarely, in a process whose values have none and whose caches are large."""

import gc

YOUNG = 100_000
"""New objects between two looks. Python's own 700 made a third of the enforcer's time go into looking."""

OLD = 1000
"""Looks at the young ones, twenty at a time, between two at everything: each stops the process for as long as its
caches are large, 0.15 s after a few thousand tenants."""


def collect_rarely() -> None:
    """Leave out what the process was built of, and look at the rest rarely; call once, when all is wired."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 20, OLD)
