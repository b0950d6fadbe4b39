"""How does the command speak to the service: typed calls over HTTP, and every failure as one that can be acted on."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from plimsoll_client.cli.failures import CommandFailed, Exit, exit_for
from plimsoll_client.cli.figures import clean
from plimsoll_contracts.api import (
    DeadLetterList,
    DeadLetterView,
    DefaultLimits,
    LimitsChanged,
    LimitsPatch,
    Problem,
    ScopeList,
    ScopeStatus,
)
from plimsoll_contracts.codes import LIMIT_BELOW_USAGE, SCOPE_MISSING, TOKEN_EXPIRED, TOKEN_INVALID, TOKEN_MISSING
from plimsoll_contracts.decisions_api import (
    DecisionDetail,
    DecisionList,
    Explanation,
    GatesOverview,
    SimulateBody,
    Simulated,
    TenantGates,
    UsageAt,
)
from plimsoll_contracts.dimensions import Dimension
from plimsoll_contracts.doctor import Diagnosis
from plimsoll_contracts.enforcement import EnforcementReply
from plimsoll_contracts.limit_requests import RequestState
from plimsoll_contracts.limits_api import (
    Applied,
    ApplyBody,
    Approval,
    LimitAsk,
    LimitEntry,
    LimitHistory,
    LimitList,
    LimitRequestList,
    LimitRequestView,
    Rejection,
)
from plimsoll_contracts.scopes import Scope
from plimsoll_contracts.verbs import CheckBody

M = TypeVar("M", bound=BaseModel)

_PREFIX = "/api/v1/quota"
_TIMEOUT_SECONDS = 10.0
_DOCTOR_SECONDS = 15.0
"""The service itself takes at most ten."""
_APPLY_SECONDS = 60.0
"""Thousands of limits in one transaction."""
_SIMULATION_SECONDS = 600.0
_PAGE = 500
_HOW = "with --token-file or $PLIMSOLL_TOKEN; for the local stack `plimsoll token` makes one"
_AUTH_HINTS = {
    TOKEN_MISSING.code: f"give a token {_HOW}",
    TOKEN_INVALID.code: f"give another token {_HOW}",
    TOKEN_EXPIRED.code: f"give a new token {_HOW}, and `make down up` renews the one it left",
    SCOPE_MISSING.code: f"give one with that scope {_HOW} (--scope)",
}


class Api:
    """The quota API at one address."""

    def __init__(self, url: str, token: str | None = None) -> None:
        """Describe the connection; nothing is sent yet."""
        self._url = url
        self.says_who = token is not None
        """Whether a token says who does what is done."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        # No proxies from the environment: the service is inside, and a proxy would be handed what only it may see.
        try:
            self._http = httpx.Client(
                base_url=url + _PREFIX, headers=headers, timeout=_TIMEOUT_SECONDS, trust_env=False
            )
        except httpx.InvalidURL as error:
            raise _no_address(url, error) from None

    def status(self, scope: Scope) -> ScopeStatus:
        """Read limits and usage of one scope."""
        return self._ask(ScopeStatus, "GET", f"/tenants/{scope.tenant}/status", params=_place(scope))

    def defaults(self) -> DefaultLimits:
        """Read the global defaults."""
        return self._ask(DefaultLimits, "GET", "/defaults")

    def change(self, scope: Scope | None, patch: LimitsPatch, *, version: int | None = None) -> LimitsChanged:
        """Set and unset limits of one scope, or the global defaults where the scope is None."""
        path = "/defaults" if scope is None else f"/tenants/{scope.tenant}/limits"
        headers = {"If-Match": "*" if version is None else f'"{version}"'}
        params = {} if scope is None else _place(scope)
        body = patch.model_dump(mode="json")
        return self._ask(LimitsChanged, "PATCH", path, params=params, json=body, headers=headers)

    def limits(self, tenant: str | None, **query: Any) -> Iterator[LimitEntry]:
        """List the overrides of a tenant, or of all, every page."""
        path = "/limits" if tenant is None else f"/tenants/{quote(tenant, safe='')}/limits"
        after: str | None = ""
        while after is not None:
            page = self._ask(LimitList, "GET", path, params=_given(query | {"after": after, "limit": _PAGE}))
            yield from page.limits
            after = page.next

    def history(self, scope: Scope | None, *, of_defaults: bool = False, **query: Any) -> LimitHistory:
        """Read the newest changes of one scope's limits, of the defaults, or of everything where neither is named."""
        if scope is None:
            path = "/defaults/history" if of_defaults else "/limits/history"
            return self._ask(LimitHistory, "GET", path, params=_given(query))
        params = _given(query) | dict(_place(scope))
        return self._ask(LimitHistory, "GET", f"/tenants/{scope.tenant}/limits/history", params=params)

    def apply(self, body: ApplyBody) -> Applied:
        """Plan or apply a declaration of limits."""
        told = body.model_dump(mode="json")
        return self._ask(Applied, "POST", "/apply", json=told, timeout=_APPLY_SECONDS)

    def ask_for_limit(self, body: LimitAsk) -> LimitRequestView:
        """Ask for another limit."""
        return self._ask(LimitRequestView, "POST", "/limit-requests", json=body.model_dump(mode="json"))

    def limit_requests(self, state: RequestState | None, tenant: str | None) -> Iterator[LimitRequestView]:
        """List requests for limits, newest first, every page."""
        before: int | None = None
        while True:
            query = _given({"state": state, "tenant": tenant, "before": before, "limit": _PAGE})
            page = self._ask(LimitRequestList, "GET", "/limit-requests", params=query)
            yield from page.requests
            before = page.next
            if before is None:
                return

    def limit_request(self, request: int) -> LimitRequestView:
        """Read one request for a limit."""
        return self._ask(LimitRequestView, "GET", f"/limit-requests/{request}")

    def decide(self, request: int, body: Approval | Rejection) -> LimitRequestView:
        """Approve or reject a request for a limit."""
        verb = "approve" if isinstance(body, Approval) else "reject"
        told = body.model_dump(mode="json")
        return self._ask(LimitRequestView, "POST", f"/limit-requests/{request}/{verb}", json=told)

    def check(self, body: CheckBody) -> EnforcementReply:
        """Ask whether something would be allowed now."""
        return self._ask(EnforcementReply, "POST", "/check", json=body.model_dump(mode="json", exclude_unset=True))

    def scopes(self, tenant: str | None) -> Iterator[str]:
        """List tenants, or the scopes of one, all pages."""
        path = "/tenants" if tenant is None else f"/tenants/{quote(tenant, safe='')}/scopes"
        after: str | None = ""
        while after is not None:
            page = self._ask(ScopeList, "GET", path, params={"after": after, "limit": _PAGE})
            yield from page.scopes
            after = page.next

    def dead_letters(self, *, replayed: bool) -> Iterator[DeadLetterView]:
        """List records that were set aside, all pages."""
        after: int | None = 0
        while after is not None:
            params = {"after": after, "limit": _PAGE, "replayed": replayed}
            page = self._ask(DeadLetterList, "GET", "/dead-letters", params=params)
            yield from page.dead_letters
            after = page.next

    def dead_letter(self, letter: int) -> DeadLetterView:
        """Read one record that was set aside."""
        return self._ask(DeadLetterView, "GET", f"/dead-letters/{letter}")

    def replay(self, letter: int, *, dry_run: bool) -> DeadLetterView:
        """Publish one to its topic again, or only say whether that could be done."""
        return self._ask(DeadLetterView, "POST", f"/dead-letters/{letter}/replay", params={"dry_run": dry_run})

    def usage(self, scope: Scope, at: datetime | None) -> UsageAt:
        """Read what one scope used at an instant; None is now."""
        params = _place(scope) | ({} if at is None else {"at": at.isoformat()})
        return self._ask(UsageAt, "GET", f"/tenants/{scope.tenant}/usage", params=params)

    def decisions(self, scope: Scope | None, **query: Any) -> DecisionList:
        """Read one page of decisions; of all tenants where the scope is None."""
        path = "/decisions" if scope is None else f"/tenants/{scope.tenant}/decisions"
        return self._ask(DecisionList, "GET", path, params=_given(query) | (_place(scope) if scope is not None else {}))

    def decision(self, tenant: str, request_id: str) -> DecisionDetail:
        """Read one decision with what it rests on."""
        path = f"/tenants/{quote(tenant, safe='')}/decisions/{quote(request_id, safe='')}"
        return self._ask(DecisionDetail, "GET", path)

    def gates(self) -> GatesOverview:
        """Read how the gates stand over all tenants, every page of those without an entitlement."""
        found = page = self._ask(GatesOverview, "GET", "/gates", params={"limit": _PAGE})
        while page.next is not None:
            page = self._ask(GatesOverview, "GET", "/gates", params={"limit": _PAGE, "after": page.next})
            tenants = (*found.without_entitlement, *page.without_entitlement)
            found = found.model_copy(update={"without_entitlement": tenants, "next": None})
        return found

    def gates_of(self, tenant: str) -> TenantGates:
        """Read how each gate stands for one tenant."""
        return self._ask(TenantGates, "GET", f"/tenants/{tenant}/gates")

    def explain(self, scope: Scope, dimension: Dimension | None) -> Explanation:
        """Read every input of one scope's figures."""
        params = _place(scope) | _given({"dimension": dimension})
        return self._ask(Explanation, "GET", f"/tenants/{scope.tenant}/explain", params=params)

    def simulate(self, body: SimulateBody) -> Simulated:
        """Have what was decided since then decided again under other limits."""
        sent = body.model_dump(mode="json")
        return self._ask(Simulated, "POST", "/simulate", json=sent, timeout=_SIMULATION_SECONDS)

    def diagnosis(self, only: Sequence[str]) -> Diagnosis:
        """Have the service look for what is wrong."""
        return self._ask(Diagnosis, "GET", "/doctor", params={"only": list(only)}, timeout=_DOCTOR_SECONDS)

    def _ask(self, model: type[M], method: str, path: str, **request: Any) -> M:
        try:
            response = self._http.request(method, path, **request)
        except httpx.HTTPError as error:
            why = str(error) or type(error).__name__
            hint = "is it running? see `make status`, start it with `make up`, or give another --url"
            raise CommandFailed(Exit.UNREACHABLE, f"{self._url} does not answer: {clean(why)}", hint) from None
        except httpx.InvalidURL as error:
            raise _no_address(self._url, error) from None
        if response.is_error:
            raise _failed(response)
        try:
            return model.model_validate_json(response.content)
        except ValidationError as error:
            what = f"{self._url} answered something else than this version of plimsoll understands"
            hint = f"is it a Plimsoll of the same version? ({error.error_count()} differences in {model.__name__})"
            raise CommandFailed(Exit.ERROR, what, hint) from None


def _place(scope: Scope) -> dict[str, str]:
    parts = {"environment": scope.environment, "stack": scope.stack}
    return {name: value for name, value in parts.items() if value}


def _given(query: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in query.items() if value is not None}


def _no_address(url: str, error: httpx.InvalidURL) -> CommandFailed:
    return CommandFailed(Exit.USAGE, f"{clean(url)} is no address: {error}", "write http://HOST:PORT")


def _failed(response: httpx.Response) -> CommandFailed:
    code = exit_for(response.status_code)
    try:
        problem = Problem.model_validate_json(response.content)
    except ValidationError:
        return CommandFailed(code, f"{response.url.netloc.decode()} answered {response.status_code}", "is it Plimsoll?")
    hint = problem.remedy
    if problem.code == LIMIT_BELOW_USAGE.code:
        hint = f"{hint} Add --force."
    elif code is Exit.AUTH:
        hint = _AUTH_HINTS.get(problem.code, hint)
    return CommandFailed(code, clean(f"{problem.code}  {problem.detail or problem.title}"), clean(hint))
