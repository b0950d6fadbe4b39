"""A status in a narrow terminal: bars and remarks give way, a figure is never cut."""

from datetime import UTC, datetime
from io import StringIO

import pytest
from rich.console import Console

from plimsoll_client.cli import render
from plimsoll_contracts.api import DimensionStatus, LimitView, ScopeStatus
from plimsoll_contracts.dimensions import Basis, Dimension, Unit

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
LIMIT = LimitView(value=9_999_000, source="override", set_by="alexandra", set_at=NOW)
FIGURES = ("9876543m", "1234567m", "14998500m", "3887390m")


def line(dimension: Dimension, unit: Unit) -> DimensionStatus:
    return DimensionStatus(
        dimension=dimension,
        basis=Basis.BURST,
        unit=unit,
        limit=LIMIT,
        ceiling=14_998_500,
        used=9_876_543,
        held=1_234_567,
        headroom=3_887_390,
        as_of=NOW,
    )


@pytest.mark.parametrize("width", [80, 95, 96, 100, 111, 112, 240])
def test_no_figure_is_cut(width: int) -> None:
    found = ScopeStatus(
        scope="acme/env:load",
        tenant="acme",
        known=True,
        dimensions=(line(Dimension.CPU, Unit.MILLICORES),),
        gates=(),
        open_holds=0,
        deployments=1,
        seq=1,
        as_of=NOW,
    )
    console = Console(file=StringIO(), width=width, markup=False)
    console.print(render.status(found, NOW, width=width))
    assert isinstance(console.file, StringIO)
    words = console.file.getvalue().split()
    assert set(FIGURES) <= set(words), console.file.getvalue()
    assert "74" in words, "and the share"
