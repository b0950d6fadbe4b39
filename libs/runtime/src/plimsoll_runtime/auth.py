"""Who asks over HTTP, and what may they: bearer tokens as signed JWTs, checked against a key set."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import jwt
import structlog
from jwt.exceptions import ExpiredSignatureError, InvalidAudienceError, InvalidIssuerError, PyJWTError
from starlette.requests import Request

from plimsoll_contracts import codes
from plimsoll_contracts.access import ALL_TENANTS, Permission
from plimsoll_contracts.codes import Code
from plimsoll_contracts.fields import TEXT_PATTERN
from plimsoll_contracts.scopes import is_name
from plimsoll_runtime.config import ServiceSettings
from plimsoll_runtime.http import Problem
from plimsoll_runtime.keys import KeySet, KeysUnreadableError, is_address

LEEWAY_SECONDS = 30
TOKEN_CHARACTERS_MAX = 16_384
SUBJECT_CHARACTERS_MAX = 200
TENANTS_MAX = 1000
_REALM = 'Bearer realm="plimsoll"'
_REQUIRED = ("exp", "iss", "aud", "sub")

log = structlog.get_logger("plimsoll.auth")


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks. ``tenants`` None is all of them; ``subject`` None is nobody in particular: authentication is off."""

    subject: str | None
    scopes: frozenset[str]
    tenants: frozenset[str] | None

    def may_see(self, tenant: str) -> bool:
        """Whether the tenant is one of theirs."""
        return self.tenants is None or tenant in self.tenants


ANYBODY = Principal(None, frozenset(Permission), None)
"""Who asks where authentication is off."""

Authenticate = Callable[[Sequence[str]], Awaitable[Principal]]
"""From the values of the ``Authorization`` header to who it is; raises the problem to answer."""


async def let_anybody(_: Sequence[str]) -> Principal:
    """Ask nobody who they are."""
    return ANYBODY


async def authentication(settings: ServiceSettings) -> Authenticate:
    """Return what the settings ask for; the keys are read once now.

    Raises:
        KeysUnreadableError: the file of keys is missing or is none. An address may be away: it is asked again.
    """
    if settings.auth == "off":
        return let_anybody
    source = settings.auth_jwks or ""
    keys = KeySet(source)
    try:
        await keys.load()
    except KeysUnreadableError as error:
        if not is_address(source):
            raise
        log.warning("no keys yet: every token is answered 503", setting="PLIMSOLL_AUTH_JWKS", problem=str(error))
    return TokenCheck(keys, issuer=settings.auth_issuer or "", audience=settings.auth_audience or "")


def principal_of(request: Request) -> Principal:
    """Return who asks, as found before the request reached its route."""
    principal = request.state.principal
    assert isinstance(principal, Principal)  # noqa: S101 - the edge let nothing else through
    return principal


def forbidden(permission: str, more: str = "") -> Problem:
    """Make the answer to a token that does not allow what it asks for."""
    headers = {"WWW-Authenticate": f'{_REALM}, error="insufficient_scope", scope="{permission}"'}
    return Problem(codes.SCOPE_MISSING, f"this needs the scope {permission} {more}".rstrip(), headers=headers)


class TokenCheck:
    """Reads tokens of one issuer for one audience."""

    def __init__(self, keys: KeySet, *, issuer: str, audience: str) -> None:
        """Take what a token must match."""
        self._keys = keys
        self._issuer = issuer
        self._audience = audience

    async def __call__(self, authorization: Sequence[str]) -> Principal:
        """Return who the bearer is.

        Raises:
            Problem: 401 where there is no token or it does not hold, 503 where no key was ever readable.
        """
        token = _bearer(authorization)
        try:
            header = jwt.get_unverified_header(token)
        except PyJWTError:
            raise _refused(codes.TOKEN_INVALID, "this is no JWT") from None
        kid = header.get("kid")
        if not isinstance(kid, str):
            raise _refused(codes.TOKEN_INVALID, "its header names no key")
        try:
            key = await self._keys.find(kid)
        except KeysUnreadableError:
            raise Problem(codes.KEYS_UNAVAILABLE, "no token can be checked now", headers={"Retry-After": "5"}) from None
        # The key decides the algorithm; what the token says of it only has to agree.
        if key is None or header.get("alg") != key.algorithm_name:
            raise _refused(codes.TOKEN_INVALID, "its key is not known here, or is of another algorithm")
        return _principal(self._claims(token, key))

    def _claims(self, token: str, key: jwt.PyJWK) -> Mapping[str, object]:
        try:
            return jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                issuer=self._issuer,
                audience=self._audience,
                leeway=LEEWAY_SECONDS,
                options={"require": list(_REQUIRED)},
            )
        except ExpiredSignatureError:
            raise _refused(codes.TOKEN_EXPIRED, "its time has passed") from None
        except InvalidAudienceError:
            raise _refused(codes.TOKEN_INVALID, "it is for another audience") from None
        except InvalidIssuerError:
            raise _refused(codes.TOKEN_INVALID, "it is of another issuer") from None
        except (PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
            raise _refused(codes.TOKEN_INVALID, "its signature or its claims do not hold") from None


def _bearer(authorization: Sequence[str]) -> str:
    if not authorization:
        raise Problem(codes.TOKEN_MISSING, "there is no Authorization header", headers={"WWW-Authenticate": _REALM})
    kind, _, token = authorization[0].partition(" ")
    if len(authorization) > 1 or kind.lower() != "bearer" or not 0 < len(token) <= TOKEN_CHARACTERS_MAX:
        raise _refused(codes.TOKEN_INVALID, "the Authorization header is not one bearer token")
    return token


def _principal(claims: Mapping[str, object]) -> Principal:
    subject, scope, tenants = claims["sub"], claims.get("scope", ""), claims.get("tenants", [])
    if not isinstance(subject, str) or len(subject) > SUBJECT_CHARACTERS_MAX or not re.fullmatch(TEXT_PATTERN, subject):
        raise _refused(codes.TOKEN_INVALID, "its subject is not one line of text")
    if not isinstance(scope, str):
        raise _refused(codes.TOKEN_INVALID, "its scope is not words with spaces between")
    if tenants == ALL_TENANTS:
        return Principal(subject, frozenset(scope.split()), None)
    if not isinstance(tenants, list) or len(tenants) > TENANTS_MAX or not all(map(_is_tenant, tenants)):
        raise _refused(codes.TOKEN_INVALID, "its tenants are neither a list of names nor *")
    return Principal(subject, frozenset(scope.split()), frozenset(tenants))


def _is_tenant(value: object) -> bool:
    return isinstance(value, str) and is_name(value)


def _refused(code: Code, why: str) -> Problem:
    return Problem(
        code, why, headers={"WWW-Authenticate": f'{_REALM}, error="invalid_token", error_description="{why}"'}
    )
