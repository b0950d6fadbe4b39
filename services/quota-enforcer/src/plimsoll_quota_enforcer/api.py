"""What is served under ``/api/v1/quota``: limits and usage for people; verbs go through the client onto the topic."""

import base64
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, TypeVar

import asyncpg
from fastapi import Depends, FastAPI, Header, Path, Query

from plimsoll_client import Allowed, ClientStartError, Denied, EnforcementClient
from plimsoll_contracts import codes
from plimsoll_contracts.api import (
    CheckBody,
    DeadLetterList,
    DeadLetterView,
    LimitChange,
    LimitsChanged,
    LimitsPatch,
    LimitView,
    ScopeList,
    ScopeStatus,
)
from plimsoll_contracts.dimensions import Dimension, unit_of
from plimsoll_contracts.enforcement import EnforcementReply
from plimsoll_contracts.fields import UNLIMITED, Name, parse_limit
from plimsoll_contracts.quantities import QuantityError
from plimsoll_quota_enforcer import __version__, metrics
from plimsoll_quota_enforcer.answers import scope_of
from plimsoll_quota_enforcer.domain.model import Place
from plimsoll_quota_enforcer.domain.relimit import LimitRefused
from plimsoll_quota_enforcer.domain.state import Policy
from plimsoll_quota_enforcer.storage import reading
from plimsoll_quota_enforcer.storage.cache import StateCache
from plimsoll_quota_enforcer.storage.limits import DEFAULTS, Changed, Patch, Wanted, change_defaults, change_limits
from plimsoll_runtime.http import Problem, create_app
from plimsoll_streams import dead_letters
from plimsoll_streams.failures import is_transient
from plimsoll_streams.transactions import Connection

PREFIX = "/api/v1/quota"
PAGE_MAX = 500
NEW_DEPLOYMENT = "plimsoll-check"
"""The deployment that a check without a name asks about: one that does not exist."""

_INT64_MAX = 2**63 - 1

T = TypeVar("T")
Page = Annotated[int, Query(ge=1, le=PAGE_MAX)]
AfterName = Annotated[str, Query(max_length=127, pattern="^[a-z0-9._/-]*$")]
AfterLetter = Annotated[int, Query(ge=0, le=_INT64_MAX)]
Letter = Annotated[int, Path(ge=0, le=_INT64_MAX)]


def _place(environment: Name | None = None, stack: Name | None = None) -> Place:
    if stack is not None and environment is None:
        raise Problem(codes.SCOPE_IS_ROLLUP, "a stack is named without its environment: name both, or neither")
    return (environment or "", stack or "")


At = Annotated[Place, Depends(_place)]
IfMatch = Annotated[str | None, Header()]


class Api:
    """The routes and what they work with."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        cache: StateCache,
        policy: Policy,
        *,
        client: Callable[[], Awaitable[EnforcementClient]],
        wake_relay: Callable[[], None],
    ) -> None:
        """Take the parts; ``client`` is started when the first check comes."""
        self._pool = pool
        self._cache = cache
        self._policy = policy
        self._client = client
        self._wake_relay = wake_relay

    def app(self) -> FastAPI:
        """Build the application."""
        app = create_app(title="Plimsoll quota", version=__version__, is_momentary=is_transient)
        app.get(f"{PREFIX}/tenants")(self.list_tenants)
        app.get(f"{PREFIX}/tenants/{{tenant}}/scopes")(self.list_scopes)
        app.get(f"{PREFIX}/tenants/{{tenant}}/status")(self.read_status)
        app.patch(f"{PREFIX}/tenants/{{tenant}}/limits")(self.patch_limits)
        app.get(f"{PREFIX}/defaults")(self.read_defaults)
        app.patch(f"{PREFIX}/defaults")(self.patch_defaults)
        app.post(f"{PREFIX}/check")(self.check)
        app.get(f"{PREFIX}/dead-letters")(self.list_dead_letters)
        app.get(f"{PREFIX}/dead-letters/{{letter}}")(self.show_dead_letter)
        app.post(f"{PREFIX}/dead-letters/{{letter}}/replay")(self.replay_dead_letter)
        return app

    async def list_tenants(self, after: AfterName = "", limit: Page = 100) -> ScopeList:
        """List tenants by name."""
        found = await reading.tenants(self._pool, after, limit)
        return ScopeList(scopes=tuple(found), next=found[-1] if len(found) == limit else None)

    async def list_scopes(self, tenant: Name, after: AfterName | None = None, limit: Page = 100) -> ScopeList:
        """List a tenant's scopes that have usage or limits; ``after`` is what ``next`` said."""
        environment, _, stack = (after or "").partition("/")
        begin = (environment, stack) if after is not None else None
        found = await reading.places(self._pool, tenant, begin, limit)
        rendered = tuple(scope_of(tenant, place).render() for place in found)
        return ScopeList(scopes=rendered, next="/".join(found[-1]) if len(found) == limit else None)

    async def read_status(self, tenant: Name, place: At) -> ScopeStatus:
        """Show limits, usage and gates of one scope."""
        return await reading.scope_status(self._pool, self._policy, tenant, place)

    async def patch_limits(
        self, tenant: Name, place: At, patch: LimitsPatch, if_match: IfMatch = None
    ) -> LimitsChanged:
        """Set and unset limits of one scope, all or none."""

        async def change(connection: Connection) -> Changed:
            read = _patch(patch, if_match)
            return await change_limits(connection, self._cache, self._policy, tenant=tenant, place=place, patch=read)

        return _changed(scope_of(tenant, place).render(), await self._write(change))

    async def read_defaults(self) -> Mapping[str, Mapping[str, LimitView]]:
        """Show the global defaults."""
        found = await reading.defaults(self._pool)
        return {"limits": {str(dimension): limit for dimension, limit in found.items()}}

    async def patch_defaults(self, patch: LimitsPatch, if_match: IfMatch = None) -> LimitsChanged:
        """Set and unset global defaults, all or none. Every tenant is judged by them within seconds."""
        changed = await self._write(lambda connection: change_defaults(connection, _patch(patch, if_match)))
        return _changed(DEFAULTS, changed)

    async def check(self, body: CheckBody) -> EnforcementReply:
        """Ask whether something would be allowed now; a denial is an answer, not an error."""
        try:
            client = await self._client()
        except ClientStartError as error:
            raise Problem(codes.GATE_UNAVAILABLE, str(error)) from None
        outcome = await client.check(
            tenant=body.tenant,
            environment=body.environment,
            stack=body.stack,
            app=body.app,
            deployment=body.deployment or NEW_DEPLOYMENT,
            footprint=body.footprint,
            on_unknown="closed",
        )
        if isinstance(outcome, Allowed | Denied) and outcome.reply is not None:
            return outcome.reply
        if isinstance(outcome, Denied):
            raise Problem(codes.CODES[outcome.code], outcome.message)
        raise Problem(codes.GATE_UNAVAILABLE, "the enforcer did not answer over Kafka in time")

    async def list_dead_letters(
        self, after: AfterLetter = 0, limit: Page = 100, *, replayed: bool = False
    ) -> DeadLetterList:
        """List records that were set aside, oldest first; those replayed only on request."""
        found = await dead_letters.find(self._pool, after=after, waiting_only=not replayed, limit=limit)
        views = tuple(_dead_letter(letter) for letter in found)
        return DeadLetterList(dead_letters=views, next=found[-1].id if len(found) == limit else None)

    async def show_dead_letter(self, letter: Letter) -> DeadLetterView:
        """Show one record that was set aside, with its bytes."""
        found = await dead_letters.show(self._pool, letter)
        if found is None:
            raise Problem(codes.NOT_FOUND, f"there is no dead letter {letter}")
        return _dead_letter(found, whole=True)

    async def replay_dead_letter(self, letter: Letter, *, dry_run: bool = False) -> DeadLetterView:
        """Publish a record to its topic again, byte for byte."""

        async def replay(connection: Connection) -> dead_letters.Kept:
            try:
                return (await dead_letters.replay(connection, [letter], dry_run=dry_run))[0]
            except LookupError as error:
                raise Problem(codes.NOT_FOUND, str(error)) from None
            except ValueError as error:
                raise Problem(codes.INVALID_REQUEST, str(error)) from None

        return _dead_letter(await self._write(replay))

    async def _write(self, change: Callable[[Connection], Awaitable[T]]) -> T:
        """Run a change in one transaction, and have the relay publish what it told."""
        try:
            async with self._pool.acquire() as connection, connection.transaction():
                result = await change(connection)
        except LimitRefused as refused:
            raise Problem(refused.code, refused.detail) from None
        self._wake_relay()
        return result


def _patch(body: LimitsPatch, if_match: str | None) -> Patch:
    values: dict[Dimension, Wanted | None] = {}
    for name, value in body.limits.items():
        try:
            dimension = Dimension(name)
        except ValueError:
            raise Problem(codes.DIMENSION_UNKNOWN, f"{name!r} is none of {', '.join(Dimension)}") from None
        values[dimension] = _wanted(dimension, value)
    return Patch(values, body.by, body.reason, body.mode, body.expires_at, body.force, _version(if_match, body))


def _wanted(dimension: Dimension, value: int | str | None) -> Wanted | None:
    if value is None:
        return None
    try:
        limit = parse_limit(dimension, value)
    except QuantityError as error:
        raise Problem(codes.INVALID_AMOUNT[unit_of(dimension)], str(error)) from None
    return Wanted(None if limit == UNLIMITED else limit)


def _version(if_match: str | None, body: LimitsPatch) -> int | None:
    """Read ``If-Match``: the version of the one dimension that the patch names."""
    if if_match is None or if_match == "*":
        return None
    text = if_match.strip('"')
    if not (text.isascii() and text.isdigit()) or len(text) > 18:  # noqa: PLR2004 - digits of an int64
        raise Problem(codes.LIMIT_VERSION_CONFLICT, f"If-Match {if_match[:40]!r} is no version of a limit")
    if len(body.limits) != 1:
        raise Problem(codes.INVALID_REQUEST, "If-Match goes with exactly one dimension")
    return int(text)


def _changed(scope: str, changed: Changed) -> LimitsChanged:
    changed.committed()
    for plan in changed.plans:
        metrics.limit_changes.inc(kind="set" if plan.limit is not None else "unset")
    return LimitsChanged(
        scope=scope,
        changes=tuple(
            LimitChange(
                dimension=plan.dimension,
                before=reading.limit_view(plan.before),
                after=reading.limit_view(plan.after),
                warnings=plan.warnings,
            )
            for plan in changed.plans
        ),
        seq=changed.seq,
    )


def _dead_letter(kept: dead_letters.Kept, *, whole: bool = False) -> DeadLetterView:
    record = kept.record
    return DeadLetterView(
        id=kept.id,
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        key=record.key.decode(errors="backslashreplace") if record.key is not None else None,
        code=kept.code,
        detail=kept.detail,
        at=kept.created_at,
        size=len(record.value or b""),
        replayed_at=kept.replayed_at,
        value_base64=base64.b64encode(record.value).decode() if whole and record.value is not None else None,
    )
