"""What does ``plimsoll decisions`` do: list, show and follow what was decided."""

import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from cyclopts import App

from plimsoll_client.cli import render_decisions as render
from plimsoll_client.cli.arguments import read_scope, read_since
from plimsoll_client.cli.failures import CommandFailed, Exit
from plimsoll_client.cli.session import PLAIN_FLAGS, In, Session, watchable
from plimsoll_contracts.decisions_api import DecisionLine
from plimsoll_contracts.enforcement import Verb
from plimsoll_contracts.scopes import Scope

decisions = App(
    name="decisions",
    help="What was decided, and on what.",
    default_parameter=PLAIN_FLAGS,
)

_PAGE = 500
_POLL_SECONDS = 1.0
_OVERLAP = timedelta(seconds=10)
"""A decision is seen once it is committed, which may be later than others that were decided after it."""


@decisions.command(name="list")
@watchable
def list_decisions(
    scope: str | None = None,
    /,
    *,
    since: str | None = None,
    until: str | None = None,
    verb: Verb | None = None,
    code: str | None = None,
    denied: bool = False,
    allowed: bool = False,
    deployment: str | None = None,
    limit: int = 50,
    session: In,
) -> Exit:
    """List stored decisions, newest first.

    Args:
        scope: TENANT, TENANT/env:ENVIRONMENT or TENANT/STACK/ENVIRONMENT; all tenants where it is not given.
        since: From when on: 2h (ago), 3d, 2026-11-30, 2026-11-30T12:00.
        until: Until when, written the same way.
        verb: Only this one: reserve, commit, release or adjust.
        code: Only those refused with this code.
        denied: Only those that were refused.
        allowed: Only those that were allowed.
        deployment: Only those about this deployment.
        limit: How many at most.
        session: This run of the command.
    """
    if limit < 1:
        raise CommandFailed(Exit.USAGE, f"--limit {limit} shows nothing", "give a number from 1")
    query = {
        "since": _moment(since, session),
        "until": _moment(until, session),
        **_filter(verb, code, deployment, denied=denied, allowed=allowed),
    }
    found: list[DecisionLine] = []
    more = False
    for line in _pages(session, read_scope(scope) if scope is not None else None, query, min(limit, _PAGE)):
        more = len(found) == limit
        if more:
            break
        found.append(line)
    session.show({"decisions": found}, lambda: render.decisions(found), map(_row, found))
    if more:
        session.say(f"there are more than {limit}: narrow it down, or give --limit")
    elif not found:
        session.say("no decision like this is kept")
    return Exit.OK


@decisions.command
@watchable
def show(request_id: str, /, *, tenant: str, session: In) -> Exit:
    """Show one decision: what was asked, what was answered, and what it was decided on.

    Args:
        request_id: The request's id.
        tenant: Whose it is.
        session: This run of the command.
    """
    return show_decision(session, tenant, request_id)


def show_decision(session: Session, tenant: str, request_id: str) -> Exit:
    """Show one decision, also for ``quota explain``."""
    found = session.api.decision(read_scope(tenant).tenant, request_id)
    session.show(found, lambda: render.decision(found, session.now), [_row(found)])
    return Exit.OK


@decisions.command
def tail(
    scope: str | None = None,
    /,
    *,
    since: str | None = None,
    verb: Verb | None = None,
    code: str | None = None,
    denied: bool = False,
    allowed: bool = False,
    deployment: str | None = None,
    session: In,
) -> Exit:
    """Follow decisions as they are made, until Ctrl-C; with `-o json` each is one line.

    Args:
        scope: TENANT, TENANT/env:ENVIRONMENT or TENANT/STACK/ENVIRONMENT; all tenants where it is not given.
        since: Begin with those since then: 10m (ago), 2026-11-30T12:00; new ones only where it is not given.
        verb: Only this one: reserve, commit, release or adjust.
        code: Only those refused with this code.
        denied: Only those that were refused.
        allowed: Only those that were allowed.
        deployment: Only those about this deployment.
        session: This run of the command.
    """
    where = read_scope(scope) if scope is not None else None
    query = _filter(verb, code, deployment, denied=denied, allowed=allowed)
    begin = read_since(since, session.now) or session.now
    first = True
    try:
        for line in _followed(session, where, query, begin):
            session.follow(line, render.decision_line(line), _row(line), first=first)
            first = False
    except KeyboardInterrupt:
        pass
    return Exit.OK


def _followed(
    session: Session, scope: Scope | None, query: Mapping[str, object], since: datetime
) -> Iterator[DecisionLine]:
    """Yield each decision once, for ever: the last seconds are read again each time."""
    seen: dict[tuple[str, str], DecisionLine] = {}
    reached = False
    while True:
        try:
            for line in _pages(session, scope, {**query, "since": since.isoformat(), "oldest_first": True}, _PAGE):
                if (line.tenant, line.request_id) not in seen:
                    seen[line.tenant, line.request_id] = line
                    yield line
            reached = True
        except CommandFailed as failure:
            if failure.code is not Exit.UNREACHABLE or (not reached and not seen):
                raise
            if reached:
                session.say(f"{failure.message}: trying again", "yellow")
            reached = False
        since = max(since, max((line.decided_at for line in seen.values()), default=since) - _OVERLAP)
        seen = {key: line for key, line in seen.items() if line.decided_at >= since}
        time.sleep(_POLL_SECONDS)


def _pages(session: Session, scope: Scope | None, query: Mapping[str, object], size: int) -> Iterator[DecisionLine]:
    after: str | None = None
    while True:
        page = session.api.decisions(scope, **query, after=after, limit=size)
        yield from page.decisions
        if page.next is None:
            return
        after = page.next


def _moment(text: str | None, session: Session) -> str | None:
    when = read_since(text, session.now)
    return when.isoformat() if when is not None else None


def _filter(
    verb: Verb | None, code: str | None, deployment: str | None, *, denied: bool, allowed: bool
) -> dict[str, object]:
    if denied and allowed:
        raise CommandFailed(Exit.USAGE, "nothing is both denied and allowed", "give one of --denied and --allowed")
    verdict = False if denied else True if allowed else None
    return {"verb": verb, "code": code, "deployment": deployment, "allowed": verdict}


def _row(line: DecisionLine) -> Mapping[str, object]:
    return {
        "decided_at": line.decided_at.isoformat(),
        "tenant": line.tenant,
        "request_id": line.request_id,
        "verb": line.verb,
        "scope": line.scope,
        "deployment": line.deployment,
        "allowed": line.allowed,
        "would_deny": line.would_deny,
        "code": line.code,
        "fail_open": " ".join(line.fail_open),
        "message": line.message,
    }
