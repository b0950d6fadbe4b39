"""Where is a limit set and usage counted: the three checked scopes, the roll-up, and their four renderings."""

import re
from dataclasses import dataclass

NAME_PATTERN = r"^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$"
"""The grammar of every tenant, environment, stack and app name: it is safe in keys, labels, paths and terminals."""

DEFAULTS = "defaults"
"""How the global defaults are rendered where a scope is expected; a tenant of this name can have no limits."""

_NAME = re.compile(NAME_PATTERN)
_ENVIRONMENT_PREFIX = "env:"


class ScopeError(ValueError):
    """A text is no scope, or a scope has a part outside the grammar."""


def is_name(text: str) -> bool:
    """Tell whether a text is within the grammar of names (``$`` would let a trailing newline pass)."""
    return _NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True, order=True)
class Scope:
    """A checked scope: a tenant, one of its environments, or one stack in an environment.

    Absent parts are empty strings, as in the tables, so that scopes sort and make keys.
    """

    tenant: str
    environment: str = ""
    stack: str = ""

    def chain(self) -> tuple["Scope", ...]:
        """Return the scopes that are checked for something here, most specific first."""
        tenant = Scope(self.tenant)
        if not self.environment:
            return (tenant,)
        environment = Scope(self.tenant, self.environment)
        return (self, environment, tenant) if self.stack else (environment, tenant)

    def contains(self, other: "Scope") -> bool:
        """Tell whether what happens at the other scope counts here too."""
        return (
            self.tenant == other.tenant
            and self.environment in ("", other.environment)
            and self.stack in ("", other.stack)
        )

    def render(self) -> str:
        """Return the form people read: ``acme``, ``acme/env:staging`` or ``acme/blog/default``."""
        if self.stack:
            return f"{self.tenant}/{self.stack}/{self.environment}"
        if self.environment:
            return f"{self.tenant}/{_ENVIRONMENT_PREFIX}{self.environment}"
        return self.tenant

    def __str__(self) -> str:
        return self.render()


@dataclass(frozen=True, slots=True, order=True)
class RollUp:
    """A stack over all environments of a tenant: shown, never stored and never checked (``acme/blog``)."""

    tenant: str
    stack: str

    def render(self) -> str:
        """Return the form people read."""
        return f"{self.tenant}/{self.stack}"

    def alternatives(self) -> str:
        """Say which forms would take a limit where this one cannot."""
        return (
            f"use {self.tenant} (the tenant), {self.tenant}/env:NAME (one environment) "
            f"or {self.render()}/NAME (the stack in one environment)"
        )

    def __str__(self) -> str:
        return self.render()


def scope(tenant: str, environment: str | None = None, stack: str | None = None) -> Scope:
    """Build a checked scope from its parts.

    Raises:
        ScopeError: a part is outside the grammar, or a stack is named without its environment (a roll-up).
    """
    for part, text in (("tenant", tenant), ("environment", environment), ("stack", stack)):
        if text is not None and not is_name(text):
            raise ScopeError(f"{part} {text!r} is not a name ({NAME_PATTERN})")
    if stack is not None and environment is None:
        raise ScopeError(f"{tenant}/{stack} is a roll-up over environments: {RollUp(tenant, stack).alternatives()}")
    return Scope(tenant, environment or "", stack or "")


def parse_scope(text: str) -> Scope | RollUp:
    """Read any of the four renderings.

    Raises:
        ScopeError: the text is none of them, or a part is outside the grammar of names.
    """
    match text.split("/"):
        case [tenant]:
            return scope(tenant)
        case [tenant, second] if second.startswith(_ENVIRONMENT_PREFIX):
            return scope(tenant, second.removeprefix(_ENVIRONMENT_PREFIX))
        case [tenant, stack]:
            scope(tenant, "any", stack)
            return RollUp(tenant, stack)
        case [tenant, stack, environment]:
            return scope(tenant, environment, stack)
        case _:
            raise ScopeError(
                f"{text!r} is not a scope: write TENANT, TENANT/env:ENVIRONMENT or TENANT/STACK/ENVIRONMENT"
            )
