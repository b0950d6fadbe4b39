import subprocess
import sys
from itertools import count

import pytest

from plimsoll_runtime import metrics

_unique = count()


def fresh(suffix: str) -> str:
    return f"example_{next(_unique)}_{suffix}"


def test_every_declared_combination_is_exported_at_zero_by_a_fresh_process() -> None:
    program = """
from plimsoll_runtime import metrics
metrics.counter("gates_total", "x", labels={"gate": ("a", "b"), "outcome": ("pass", "deny")})
metrics.histogram("wait_seconds", "x", buckets=(0.1, 1.0), labels={"verb": ("check",)})
metrics.gauge("depth", "x")
print(metrics.exposition().decode())
"""
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    series = {line for line in out.splitlines() if line and not line.startswith(("#", "process_"))}

    assert series == {
        *(f'gates_total{{gate="{g}",outcome="{o}"}} 0.0' for g in "ab" for o in ("pass", "deny")),
        'wait_seconds_bucket{le="0.1",verb="check"} 0.0',
        'wait_seconds_bucket{le="1.0",verb="check"} 0.0',
        'wait_seconds_bucket{le="+Inf",verb="check"} 0.0',
        'wait_seconds_count{verb="check"} 0.0',
        'wait_seconds_sum{verb="check"} 0.0',
        "depth 0.0",
    }


@pytest.mark.parametrize(
    "labels", [{"gate": "never declared"}, {}, {"gate": "a", "tenant": "acme"}, {"tenant": "acme"}]
)
def test_an_undeclared_label_raises_and_makes_no_series(labels: dict[str, str]) -> None:
    name = fresh("total")
    gates = metrics.counter(name, "x", labels={"gate": ("a",)})

    with pytest.raises(metrics.UndeclaredLabelError, match=name):
        gates.inc(**labels)

    series = [line for line in metrics.exposition().decode().splitlines() if line.startswith(name)]
    assert series == [f'{name}{{gate="a"}} 0.0']


def test_values_are_counted_where_they_belong() -> None:
    gates = metrics.counter(fresh("total"), "x", labels={"gate": ("a", "b")})
    depth = metrics.gauge(fresh("depth"), "x")
    wait = metrics.histogram(fresh("seconds"), "x", buckets=(1.0,))

    gates.inc(gate="a")
    gates.inc(2, gate="a")
    depth.set(7)
    depth.inc(-2)
    wait.observe(0.5)

    assert metrics.value(gates.declaration.name, gate="a") == 3
    assert metrics.value(gates.declaration.name, gate="b") == 0
    assert metrics.value(depth.declaration.name) == 5
    assert metrics.value(f"{wait.declaration.name}_count") == 1


def test_declaring_alike_again_is_the_same_metric_and_differently_is_refused() -> None:
    name = fresh("total")
    first = metrics.counter(name, "x", labels={"gate": ("a",)})

    assert metrics.counter(name, "x", labels={"gate": ("a",)}) is first
    with pytest.raises(ValueError, match="declared twice"):
        metrics.counter(name, "x", labels={"gate": ("a", "b")})


def test_careless_declarations_are_refused() -> None:
    with pytest.raises(ValueError, match="_total"):
        metrics.counter(fresh("count"), "x")
    with pytest.raises(ValueError, match="_total"):
        metrics.gauge(fresh("total"), "x")
    with pytest.raises(ValueError, match="help"):
        metrics.gauge(fresh("depth"), "")
    with pytest.raises(ValueError, match="label gate"):
        metrics.gauge(fresh("depth"), "x", labels={"gate": ()})
    with pytest.raises(ValueError, match="combinations"):
        metrics.gauge(fresh("depth"), "x", labels={"tenant": [str(n) for n in range(10_000)]})


def test_the_catalogue_is_rendered_as_a_table() -> None:
    gates = metrics.counter(fresh("total"), "Gates passed.", labels={"gate": ("a", "b")})

    assert gates.declaration in metrics.catalogue()
    page = metrics.reference([gates.declaration])
    assert f"| `{gates.declaration.name}` | counter | `gate`: a, b | Gates passed. |" in page
