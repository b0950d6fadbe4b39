"""Which figures does a process export: declared once, closed label sets, every combination from the start.

A counter that appears only with its first increment hides that increment from `rate()` and `increase()`;
so each declared combination of label values is exported at 0 before anything happened, and a value that
was not declared is an error of the programmer, never a new series.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Generic, Literal, TypeVar

import prometheus_client
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics import MetricWrapperBase

Kind = Literal["counter", "gauge", "histogram"]

COMBINATIONS_MAX = 4096
"""Most series one declaration may make; more is a label that does not belong on a metric."""

REGISTRY = CollectorRegistry()
CONTENT_TYPE = prometheus_client.CONTENT_TYPE_PLAIN_0_0_4

# A `_created` series beside each would double what is stored, and nobody asks for it.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call] # the library left it untyped
ProcessCollector(registry=REGISTRY)


@dataclass(frozen=True, slots=True)
class Declaration:
    """What one metric means: the catalogue's row."""

    name: str
    kind: Kind
    help: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    buckets: tuple[float, ...] = ()


class UndeclaredLabelError(ValueError):
    """A label or label value that its metric's declaration does not have."""


P = TypeVar("P", bound=MetricWrapperBase)


class Metric(Generic[P]):
    """A declared metric; its children exist from the declaration on."""

    def __init__(self, declaration: Declaration, collector: P) -> None:
        self.declaration = declaration
        names = tuple(declaration.labels)
        self._children: dict[tuple[str, ...], P] = {
            values: collector.labels(*values) if names else collector
            for values in product(*declaration.labels.values())
        }

    def child(self, **labels: str) -> P:
        """Return the series of these label values; hot paths look it up once and keep it.

        Raises:
            UndeclaredLabelError: when a label is missing, unknown, or has an undeclared value.
        """
        try:
            key = tuple(labels[name] for name in self.declaration.labels)
            if len(labels) == len(key):
                return self._children[key]
        except KeyError:
            pass
        raise UndeclaredLabelError(f"{self.declaration.name} does not declare {labels}")


class Counter(Metric[prometheus_client.Counter]):
    """Only ever goes up."""

    def inc(self, amount: float = 1, /, **labels: str) -> None:
        """Add `amount` (not negative)."""
        self.child(**labels).inc(amount)


class Gauge(Metric[prometheus_client.Gauge]):
    """A present value."""

    def set(self, value: float, /, **labels: str) -> None:
        """Set the present value."""
        self.child(**labels).set(value)

    def inc(self, amount: float = 1, /, **labels: str) -> None:
        """Add `amount`, which may be negative."""
        self.child(**labels).inc(amount)


class Histogram(Metric[prometheus_client.Histogram]):
    """A distribution, counted in buckets."""

    def observe(self, value: float, /, **labels: str) -> None:
        """Count one observation in the metric's unit."""
        self.child(**labels).observe(value)


Labels = Mapping[str, Sequence[str]]
_declared: dict[str, Counter | Gauge | Histogram] = {}


def counter(name: str, help: str, *, labels: Labels | None = None) -> Counter:  # noqa: A002 - Prometheus' word
    """Declare a counter; its name ends in `_total`."""
    declaration = _declaration(name, "counter", help, labels)
    collector = partial(prometheus_client.Counter, name, help, tuple(declaration.labels), registry=REGISTRY)
    return _once(declaration, Counter, lambda: Counter(declaration, collector()))


def gauge(name: str, help: str, *, labels: Labels | None = None) -> Gauge:  # noqa: A002 - Prometheus' word
    """Declare a gauge."""
    declaration = _declaration(name, "gauge", help, labels)
    collector = partial(prometheus_client.Gauge, name, help, tuple(declaration.labels), registry=REGISTRY)
    return _once(declaration, Gauge, lambda: Gauge(declaration, collector()))


def histogram(
    name: str,
    help: str,  # noqa: A002 - Prometheus' word
    *,
    buckets: Sequence[float],
    labels: Labels | None = None,
) -> Histogram:
    """Declare a histogram; `buckets` are upper bounds in its unit, ascending, without infinity."""
    declaration = _declaration(name, "histogram", help, labels, tuple(buckets))
    collector = partial(
        prometheus_client.Histogram,
        name,
        help,
        tuple(declaration.labels),
        registry=REGISTRY,
        buckets=declaration.buckets,
    )
    return _once(declaration, Histogram, lambda: Histogram(declaration, collector()))


def catalogue() -> tuple[Declaration, ...]:
    """Return every declaration of the modules imported so far, by name."""
    return tuple(_declared[name].declaration for name in sorted(_declared))


def value(name: str, **labels: str) -> float | None:
    """Return the present value of one series by its exported name, for tests and status pages."""
    return REGISTRY.get_sample_value(name, labels)


def exposition() -> bytes:
    """Return what a scrape reads, in Prometheus' text format."""
    return prometheus_client.generate_latest(REGISTRY)


def reference(declarations: Iterable[Declaration]) -> str:
    """Render declarations as the Markdown of `docs/reference/metrics.md`."""
    lines = [
        "# Metrics",
        "",
        "Generated from the declarations in the code; do not edit.",
        "Every combination of label values is exported from process start: counters at 0.",
        "",
        "| name | type | labels | meaning |",
        "|---|---|---|---|",
    ]
    for each in sorted(declarations, key=lambda declaration: declaration.name):
        labels = "<br>".join(f"`{name}`: {', '.join(values)}" for name, values in each.labels.items())
        lines.append(f"| `{each.name}` | {each.kind} | {labels or '-'} | {each.help} |")
    return "\n".join(lines) + "\n"


def _declaration(
    name: str,
    kind: Kind,
    help: str,  # noqa: A002 - Prometheus' word
    labels: Labels | None,
    buckets: tuple[float, ...] = (),
) -> Declaration:
    closed = {label: tuple(values) for label, values in (labels or {}).items()}
    if (kind == "counter") != name.endswith("_total"):
        raise ValueError(f"{name}: exactly the counters end in _total")
    if not help or "|" in help:
        raise ValueError(f"{name}: needs a help text (without '|': it becomes a table's cell)")
    for label, values in closed.items():
        if not values or len(set(values)) != len(values):
            raise ValueError(f"{name}: label {label} needs its values, each once")
    if math.prod(len(values) for values in closed.values()) > COMBINATIONS_MAX:
        raise ValueError(f"{name}: more than {COMBINATIONS_MAX} combinations of label values")
    return Declaration(name, kind, help, closed, buckets)


M = TypeVar("M", Counter, Gauge, Histogram)


def _once(declaration: Declaration, kind: type[M], make: Callable[[], M]) -> M:
    """Make the metric, or return the one that was declared alike before."""
    known = _declared.get(declaration.name)
    if known is None:
        made = make()
        _declared[declaration.name] = made
        return made
    if known.declaration != declaration or not isinstance(known, kind):
        raise ValueError(f"{declaration.name} is declared twice, differently")
    return known
