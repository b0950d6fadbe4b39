"""What does ``plimsoll quota simulate`` do: what would other limits have refused, and what would be over them now?"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from pydantic import ValidationError

from plimsoll_client.cli import quotas_file
from plimsoll_client.cli import render_decisions as render
from plimsoll_client.cli.arguments import read_dimension, read_limits, read_scope_or_defaults, read_since
from plimsoll_client.cli.commands import quota
from plimsoll_client.cli.failures import CommandFailed, Exit
from plimsoll_client.cli.session import In, Session
from plimsoll_contracts.decisions_api import Fared, SimulateBody
from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.enforcement import explain

_REMIND_SECONDS = 5.0
_WEEK = timedelta(days=7)
_Many = Annotated[list[str], Parameter(consume_multiple=True)]


@quota.command
def simulate(
    *,
    set: _Many = [],  # noqa: A002, B006  the option's name; cyclopts takes no None for a list, and nobody writes it
    unset: _Many = [],  # noqa: B006  as above
    file: Annotated[Path | None, Parameter(name=("--file", "-f"))] = None,
    since: str | None = None,
    session: In,
) -> Exit:
    """Try limits on what was asked for: `plimsoll quota simulate --set acme cpu=2 --since 7d`. Nothing is changed.

    Exits with 5 where something would have been refused that was allowed, or would be over its limit now.

    Args:
        set: A scope and limits: `acme cpu=2 memory=8g`, `acme/env:dev cpu=1`, `defaults vapps=3`; may be repeated.
        unset: A scope and dimensions that shall inherit: `acme/env:dev memory`; may be repeated.
        file: Limits as `quota apply` takes them, so that a file can be tried first.
        since: From when on: 2h (ago), 7d, 2026-11-30; a week where it is not given.
        session: This run of the command.
    """
    named: dict[str, dict[str, object]] = {}
    if file is not None:
        quotas = quotas_file.load(file)
        named = {scope: dict(limits) for scope, limits in (("defaults", quotas.defaults), *quotas.scopes.items())}
    for scope, words in _by_scope(set, lambda word: "=" in word):
        named.setdefault(scope, {}).update(read_limits(words))
    for scope, words in _by_scope(unset, lambda word: word in list(Dimension)):
        if not words:
            raise CommandFailed(Exit.USAGE, f"nothing to unset at {scope}", "name dimensions, such as cpu memory")
        named.setdefault(scope, {}).update(dict.fromkeys(map(read_dimension, words)))
    defaults = named.pop("defaults", {})
    if not named and not defaults:
        raise CommandFailed(Exit.USAGE, "no limit to try", "give --set SCOPE DIMENSION=AMOUNT, --unset or --file")
    try:
        body = SimulateBody.model_validate(
            {"defaults": defaults, "scopes": named, "since": read_since(since, session.now) or session.now - _WEEK}
        )
    except ValidationError as error:
        raise CommandFailed(Exit.USAGE, explain(error)) from None
    with _patience(session):
        found = session.api.simulate(body)
    rows = [_row("refused", each) for each in found.refusals] + [_row("allowed", each) for each in found.admissions]
    session.show(found, lambda: render.simulated(found), rows)
    if found.cut:
        session.say("there is more than is replayed at once: ask for less than since then", "yellow")
    return Exit.DENIED if found.newly_refused or found.over_now else Exit.OK


def _by_scope(words: list[str], belongs: Callable[[str], bool]) -> Iterator[tuple[str, list[str]]]:
    """Yield each scope with the words that come after it."""
    scope, after = "", list[str]()
    for word in words:
        if scope and belongs(word):
            after.append(word)
            continue
        if scope:
            yield scope, after
        where = read_scope_or_defaults(word)
        scope, after = ("defaults" if where is None else str(where)), []
    if scope:
        yield scope, after


@contextmanager
def _patience(session: Session) -> Iterator[None]:
    """Say every few seconds that it goes on."""
    done = threading.Event()

    def remind() -> None:
        seconds = 0.0
        while not done.wait(_REMIND_SECONDS):
            seconds += _REMIND_SECONDS
            session.say(f"still replaying after {seconds:g} s")

    reminder = threading.Thread(target=remind, daemon=True)
    reminder.start()
    try:
        yield
    finally:
        done.set()
        reminder.join()


def _row(became: str, each: Fared) -> Mapping[str, object]:
    worst = each.over[0] if each.over else None
    return {
        "would_be": became,
        "decided_at": each.decided_at.isoformat(),
        "tenant": each.tenant,
        "request_id": each.request_id,
        "scope": each.scope,
        "deployment": each.deployment,
        "code": each.code,
        "limited_scope": worst and worst.scope,
        "dimension": worst and worst.dimension,
        "basis": worst and worst.basis,
        "limit": worst and worst.limit,
        "over_by": worst and worst.over_by,
    }
