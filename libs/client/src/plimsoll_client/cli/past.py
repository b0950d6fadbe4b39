"""What do ``plimsoll quota usage`` and ``plimsoll gates`` do?"""

from plimsoll_client.cli import render_decisions as render
from plimsoll_client.cli.arguments import read_scope, read_since
from plimsoll_client.cli.commands import quota
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
