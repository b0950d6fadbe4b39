"""What do ``plimsoll quota usage``, ``quota explain`` and ``plimsoll gates`` do?"""

from plimsoll_client.cli import render_decisions as render
from plimsoll_client.cli import render_explained
from plimsoll_client.cli.arguments import read_dimension, read_scope, read_since
from plimsoll_client.cli.commands import quota
from plimsoll_client.cli.decisions import show_decision
from plimsoll_client.cli.failures import Exit
from plimsoll_client.cli.session import In, watchable


@quota.command
@watchable
def usage(scope: str, /, *, at: str | None = None, session: In) -> Exit:
    """Show what a scope used and held, at any instant that is kept.

    Args:
        scope: TENANT, TENANT/env:ENVIRONMENT or TENANT/STACK/ENVIRONMENT.
        at: When: 2h (ago), 3d, 2026-11-30, 2026-11-30T12:00; now where it is not given.
        session: This run of the command.
    """
    found = session.api.usage(read_scope(scope), read_since(at, session.now))
    rows = (
        {
            "scope": found.scope,
            "at": found.at.isoformat(),
            "dimension": line.dimension,
            "basis": line.basis,
            "unit": line.unit,
            "used": line.used,
            "held": line.held,
        }
        for line in found.dimensions
    )
    session.show(found, lambda: render.usage(found, session.now), rows)
    return Exit.OK


@quota.command
@watchable
def explain(scope: str, dimension: str | None = None, /, *, tenant: str | None = None, session: In) -> Exit:
    """Show why a scope's figures are what they are, or with --tenant why a request was decided as it was.

    Args:
        scope: TENANT, TENANT/env:ENVIRONMENT or TENANT/STACK/ENVIRONMENT; with --tenant the id of a request.
        dimension: Only this one, such as cpu.
        tenant: Whose request it was.
        session: This run of the command.
    """
    if tenant is not None:
        return show_decision(session, tenant, scope)
    only = read_dimension(dimension) if dimension is not None else None
    found = session.api.explain(read_scope(scope), only)
    rows = (
        {
            "scope": found.scope,
            "dimension": line.dimension,
            "basis": line.basis,
            "unit": line.unit,
            "ceiling": line.ceiling,
            "source": next((level.level for level in line.levels if level.holds), None),
            "used": line.used,
            "held": line.held,
            "headroom": line.headroom,
        }
        for line in found.figures
    )
    session.show(found, lambda: render_explained.explanation(found, session.now), rows)
    return Exit.OK


@watchable
def gates(tenant: str | None = None, /, *, session: In) -> Exit:
    """Show how the gates stand for a tenant, or over all: how often each failed open, and who is not judged by them.

    Exits with 4 where a gate is failing open.

    Args:
        tenant: Whose gates; the platform's where it is not given.
        session: This run of the command.
    """
    if tenant is not None:
        found = session.api.gates_of(read_scope(tenant).tenant)
        rows = ({"tenant": found.tenant, **gate.model_dump(mode="json")} for gate in found.gates)
        session.show(found, lambda: render.tenant_gates(found, session.now), rows)
        return Exit.DEGRADED if any(gate.state == "fail_open" for gate in found.gates) else Exit.OK
    overview = session.api.gates()
    totals = (each.model_dump(mode="json") for each in overview.gates)
    session.show(overview, lambda: render.gates(overview, session.now), totals)
    if not overview.expected:
        session.say("entitlements are off here: there are no gates")
    return Exit.DEGRADED if overview.without_entitlement else Exit.OK
