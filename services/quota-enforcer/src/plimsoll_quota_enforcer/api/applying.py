"""How is a declaration of many limits applied over HTTP, or only planned?"""

from collections.abc import Mapping

from fastapi import APIRouter

from plimsoll_contracts import codes
from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.fields import UNLIMITED
from plimsoll_contracts.limits_api import (
    MAX_DECLARED,
    Applied,
    ApplyBody,
    DeclaredLimit,
    DeclaredLimits,
    PlannedChange,
    SetLimit,
)
from plimsoll_contracts.scopes import DEFAULTS, RollUp, Scope, ScopeError, parse_scope
from plimsoll_quota_enforcer import metrics
from plimsoll_quota_enforcer.api.access import Writer, done_by, everywhere, own
from plimsoll_quota_enforcer.api.limits import read_dimension, read_wanted
from plimsoll_quota_enforcer.api.once import MaybeOnce
from plimsoll_quota_enforcer.api.parts import Given
from plimsoll_quota_enforcer.domain.declare import Declaration, Declared
from plimsoll_quota_enforcer.domain.model import Limit, Place
from plimsoll_quota_enforcer.domain.relimit import LimitRefused, may_have_limit
from plimsoll_quota_enforcer.storage import applying, reading
from plimsoll_quota_enforcer.storage.recording import PLATFORM
from plimsoll_runtime.auth import Principal
from plimsoll_runtime.http import Problem
from plimsoll_streams.transactions import Connection

FAULTS_SHOWN_MAX = 10

router = APIRouter()


@router.post("/apply")
async def apply(parts: Given, who: Writer, once: MaybeOnce, body: ApplyBody) -> Applied:
    """Set what is declared and is not so yet, over all tenants, all or none; on a dry run only say what that is."""
    if body.defaults:
        everywhere(who)
    faults = Faults()
    wanted = applying.Application(
        defaults=faults.declaration(None, body.defaults),
        scopes=declared_scopes(who, body.scopes, faults),
        by=done_by(who, body.by),
        reason=body.reason,
        force=body.force,
        dry_run=body.dry_run,
        plan=body.plan,
    )
    faults.refuse()

    async def work(connection: Connection) -> applying.Applied:
        return await applying.apply_limits(connection, parts.cache, parts.policy, wanted)

    if body.dry_run:
        return _applied(wanted, await parts.try_out(work))
    done = await parts.write(work, once=once, told=lambda done: _applied(wanted, done))
    done.committed()
    for change in done.changes:
        metrics.limit_changes.inc(kind="set" if change.plan.limit is not None else "unset")
    return _applied(wanted, done)


def _applied(wanted: applying.Application, done: applying.Applied) -> Applied:
    named = len(wanted.defaults) + sum(len(each) for of in wanted.scopes.values() for each in of.values())
    return Applied(
        applied=bool(done.changes) and not wanted.dry_run,
        plan=done.tag,
        changes=tuple(_change(change) for change in done.changes),
        unchanged=named - len(done.changes),
        inverse=_inverse(done.changes),
    )


class Faults:
    """Reads what is declared; what is wrong with it is told together."""

    def __init__(self) -> None:
        """Begin without any."""
        self._found: list[Problem] = []
        self._named = 0

    def refuse(self) -> None:
        """Raise where anything is wrong."""
        if self._named > MAX_DECLARED:
            raise Problem(codes.TOO_LARGE, f"{self._named} limits are named, {MAX_DECLARED} are allowed")
        if self._found:
            told = [problem.detail for problem in self._found[:FAULTS_SHOWN_MAX]]
            if len(self._found) > FAULTS_SHOWN_MAX:
                told.append(f"and {len(self._found) - FAULTS_SHOWN_MAX} more")
            raise Problem(self._found[0].code, "; ".join(told))

    def scope(self, text: str) -> Scope | None:
        """Read a scope."""
        try:
            scope = parse_scope(text)
        except ScopeError as error:
            self._found.append(Problem(codes.INVALID_NAME, f"scopes: {error}"))
            return None
        if isinstance(scope, RollUp):
            self._found.append(Problem(codes.SCOPE_IS_ROLLUP, f"scopes: {scope}: {scope.alternatives()}"))
            return None
        return scope

    def declaration(self, scope: Scope | None, declared: Mapping[str, object]) -> Declaration:
        """Read what is declared at one scope, or for the defaults where it is None."""
        where = DEFAULTS if scope is None else scope.render()
        read: dict[Dimension, Declared | None] = {}
        for name, value in declared.items():
            self._named += 1
            try:
                dimension = read_dimension(name)
                if scope is not None:
                    may_have_limit(scope, dimension)
                read[dimension] = _declared(dimension, value)
            except (Problem, LimitRefused) as problem:
                self._found.append(Problem(problem.code, f"{where} {name[:64]!r}: {problem.detail}"))
        return read


def _declared(dimension: Dimension, value: object) -> Declared | None:
    match value:
        case None:
            return None
        case DeclaredLimit():
            wanted = read_wanted(dimension, value.value)
            return Declared(wanted.value, value.mode, value.expires_at, value.reason or "")
        case int() | str():
            return Declared(read_wanted(dimension, value).value)
    raise TypeError(f"{value!r} is no declared limit")


def declared_scopes(
    who: Principal, scopes: Mapping[str, Mapping[str, object]], faults: Faults
) -> Mapping[str, Mapping[Place, Declaration]]:
    """Read what is declared, by tenant and place; a tenant that is not theirs is none."""
    read: dict[str, dict[Place, Declaration]] = {}
    for text, declared in scopes.items():
        scope = faults.scope(text)
        if scope is not None:
            own(who, scope.tenant)
            place = (scope.environment, scope.stack)
            read.setdefault(scope.tenant, {})[place] = faults.declaration(scope, declared)
    return read


def _set(limit: Limit | None) -> SetLimit | None:
    if limit is None:
        return None
    value = UNLIMITED if limit.value is None else limit.value
    return SetLimit(value=value, mode=limit.mode, expires_at=limit.expires_at, reason=limit.reason)


def _change(change: applying.Planned) -> PlannedChange:
    plan = change.plan
    return PlannedChange(
        scope=change.scope,
        dimension=plan.dimension,
        before=_set(change.before),
        after=_set(plan.limit),
        holds=reading.limit_view(plan.after),
        below_usage=bool(plan.below_usage),
        warnings=plan.warnings,
    )


def _inverse(changes: tuple[applying.Planned, ...]) -> DeclaredLimits:
    defaults: dict[Dimension, SetLimit | None] = {}
    scopes: dict[str, dict[Dimension, SetLimit | None]] = {}
    for change in changes:
        where = defaults if change.tenant == PLATFORM else scopes.setdefault(change.scope, {})
        where[change.plan.dimension] = _set(change.before)
    return DeclaredLimits(defaults=defaults, scopes=scopes)
