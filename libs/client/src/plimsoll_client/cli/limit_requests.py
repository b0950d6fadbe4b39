"""What does ``plimsoll limits requests`` do: ask for other limits, and decide?"""

from cyclopts import App
from pydantic import ValidationError

from plimsoll_client.cli import render_limits
from plimsoll_client.cli.arguments import read_amount, read_limits, read_scope, read_until
from plimsoll_client.cli.failures import CommandFailed, Exit
from plimsoll_client.cli.session import PLAIN_FLAGS, In, Session, watchable
from plimsoll_contracts.enforcement import Mode, explain
from plimsoll_contracts.limit_requests import RequestState
from plimsoll_contracts.limits_api import Approval, LimitAsk, LimitRequestView, Rejection

limits = App(name="limits", help="Ask for other limits, and decide.", default_parameter=PLAIN_FLAGS)
requests = App(name="requests", help="Requests for other limits.", default_parameter=PLAIN_FLAGS)
limits.command(requests)


@requests.command(name="list")
@watchable
def list_requests(tenant: str | None = None, /, *, state: RequestState | None = None, session: In) -> Exit:
    """List requests for other limits, newest first.

    Args:
        tenant: Whose; all tenants' where it is not given.
        state: Only those that stand so: asked (they wait), approved, rejected.
        session: This run of the command.
    """
    named = read_scope(tenant).tenant if tenant is not None else None
    found = list(session.api.limit_requests(state, named))
    rows = (each.model_dump(mode="json") for each in found)
    session.show({"requests": found}, lambda: render_limits.requests(found, session.now), rows)
    if not found:
        session.say("there are none")
    return Exit.OK


@requests.command
@watchable
def show(request: int, /, *, session: In) -> Exit:
    """Show one request, and what became of it.

    Args:
        request: Its id.
        session: This run of the command.
    """
    return _shown(session, session.api.limit_request(request))


@requests.command
def ask(scope: str, limit: str, /, *, reason: str, by: str | None = None, session: In) -> Exit:
    """Ask for another limit: `plimsoll limits requests ask acme/env:prod memory=16g --reason "the sale"`.

    Args:
        scope: TENANT, TENANT/env:ENVIRONMENT or TENANT/STACK/ENVIRONMENT.
        limit: DIMENSION=AMOUNT: cpu=4 (cores), memory=16g, disk=unlimited.
        reason: Why, for whoever decides.
        by: Who asks, where the service runs without authentication; else your token says it.
        session: This run of the command.
    """
    where = read_scope(scope)
    ((dimension, value),) = read_limits([limit]).items()
    try:
        body = LimitAsk(
            tenant=where.tenant,
            environment=where.environment or None,
            stack=where.stack or None,
            dimension=dimension,
            value=value,
            reason=reason,
            by=session.by(by),
        )
    except ValidationError as error:
        raise CommandFailed(Exit.USAGE, explain(error)) from None
    return _shown(session, session.api.ask_for_limit(body))


@requests.command
def approve(
    request: int,
    /,
    *,
    reason: str,
    value: str | None = None,
    until: str | None = None,
    shadow: bool = False,
    force: bool = False,
    by: str | None = None,
    session: In,
) -> Exit:
    """Set the limit that was asked for, or another, and say so.

    Args:
        request: Its id.
        reason: Why, for those who ask later.
        value: Another amount than was asked for, or `unlimited`.
        until: When it ends by itself: 2h, 3d, 2026-12-24, 2026-12-24T18:00.
        shadow: Count and tell what would be refused, and let it through.
        force: Also set what lies below present usage.
        by: Who decides, where the service runs without authentication; else your token says it.
        session: This run of the command.
    """
    other = read_amount(session.api.limit_request(request).dimension, value) if value is not None else None
    try:
        body = Approval(
            reason=reason,
            by=session.by(by),
            value=other,
            mode=Mode.SHADOW if shadow else Mode.ENFORCE,
            expires_at=read_until(until, session.now),
            force=force,
        )
    except ValidationError as error:
        raise CommandFailed(Exit.USAGE, explain(error)) from None
    return _shown(session, session.api.decide(request, body))


@requests.command
def reject(request: int, /, *, reason: str, by: str | None = None, session: In) -> Exit:
    """Say no to a request; nothing is changed.

    Args:
        request: Its id.
        reason: Why, for whoever asked.
        by: Who decides, where the service runs without authentication; else your token says it.
        session: This run of the command.
    """
    try:
        body = Rejection(reason=reason, by=session.by(by))
    except ValidationError as error:
        raise CommandFailed(Exit.USAGE, explain(error)) from None
    return _shown(session, session.api.decide(request, body))


def _shown(session: Session, found: LimitRequestView) -> Exit:
    session.show(found, lambda: render_limits.request(found, session.now), [found.model_dump(mode="json")])
    return Exit.OK
