"""Which scopes are nearly full: of each the figure that is nearest to its limit, the fullest first."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rich.console import RenderableType

from plimsoll_client.cli import render
from plimsoll_client.cli.arguments import read_scope
from plimsoll_client.cli.failures import Exit
from plimsoll_client.cli.figures import amount, clean, named, percent
from plimsoll_client.cli.session import Session
from plimsoll_contracts.api import DimensionStatus, ScopeStatus


@dataclass(frozen=True, slots=True)
class Fullest:
    """A scope, and the line of its status that is nearest to its limit; None where nothing is limited."""

    scope: str
    line: DimensionStatus | None

    @property
    def permille(self) -> float:
        """How full, in thousandths; something on a limit of zero is fuller than anything."""
        if self.line is None or self.line.ceiling is None:
            return -1
        total = self.line.used + self.line.held
        return total * 1000 / self.line.ceiling if self.line.ceiling else float("inf") if total else 0

    def row(self) -> Mapping[str, object]:
        """Return it for JSON and CSV."""
        columns = ("dimension", "basis", "unit", "used", "held", "ceiling", "headroom")
        told = self.line.model_dump(mode="json") if self.line is not None else {}
        return {"scope": self.scope, **{name: told.get(name) for name in columns}}


def fullest(status: ScopeStatus) -> Fullest:
    """Choose the line that is nearest to its limit; the first of those alike. Pure."""
    lines = [Fullest(status.scope, line) for line in status.dimensions if line.ceiling is not None]
    return max(lines, key=lambda each: each.permille, default=Fullest(status.scope, None))


def list_usage(session: Session, scopes: Iterable[str], over: int | None) -> Exit:
    """Show how full these scopes are."""
    found = [fullest(session.api.status(read_scope(scope))) for scope in dict.fromkeys(scopes)]
    found = sorted(
        (each for each in found if over is None or each.permille >= over * 10), key=lambda each: -each.permille
    )
    rows = [each.row() for each in found]
    session.show({"scopes": rows}, lambda: _table(found), rows)
    if not found:
        session.say("nothing is known yet" if over is None else f"no scope is at {over} % of a limit")
    return Exit.OK


def _table(found: Iterable[Fullest]) -> RenderableType:
    drawn = render.table("SCOPE", "FULLEST", "USED", "HELD", "LIMIT", "%", right=("USED", "HELD", "LIMIT", "%"))
    for each in found:
        if (line := each.line) is None:
            drawn.add_row(clean(each.scope), "nothing is limited", "", "", "", "-")
            continue
        unit = line.unit
        drawn.add_row(
            clean(each.scope),
            named(line.dimension, line.basis),
            amount(unit, line.used),
            amount(unit, line.held),
            amount(unit, line.ceiling),
            percent(line.used + line.held, line.ceiling),
        )
    return drawn
