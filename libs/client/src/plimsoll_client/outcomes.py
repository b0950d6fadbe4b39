"""What can a caller be told: allowed, denied with the reasons, or nothing that counts as an answer."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from plimsoll_contracts.codes import CODES, DEADLINE_PASSED, HOLD_EXPIRED, Code
from plimsoll_contracts.enforcement import (
    CapacityShortfall,
    EnforcementReply,
    HoldState,
    HoldView,
    Settled,
    Verb,
    Violation,
)

OnUnknown = Literal["open", "closed"]
"""What the caller wants where no verdict came: go on without one (``open``), or stop (``closed``)."""


class UnknownReason(StrEnum):
    """Why there is no verdict."""

    TIMEOUT = "timeout"
    """The broker has the request, and no reply came before the deadline."""
    UNREACHABLE = "unreachable"
    """The broker did not acknowledge the request."""
    OVERLOADED = "overloaded"
    """This client had as many calls in flight as it may have, until the deadline."""
    NOT_DECIDED = "not_decided"
    """The service answered that it did not decide: too late for the deadline, or an error of its own."""
    BAD_REPLY = "bad_reply"
    """A reply came that this client cannot read."""
    STOPPED = "stopped"
    """The client was stopped."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """The service said yes; for a fact (commit, release, adjust): it is recorded."""

    request_id: str
    reply: EnforcementReply

    @property
    def proceed(self) -> bool:
        """Whether the caller may go on: yes."""
        return True

    @property
    def hold(self) -> HoldView | None:
        """The hold behind a reserve."""
        return self.reply.hold

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes on which room is held."""
        return self.reply.nodes

    @property
    def notes(self) -> tuple[str, ...]:
        """What was read differently than may be expected, such as a service without resources."""
        return self.reply.notes

    @property
    def waited_ms(self) -> int | None:
        """How long it waited for room, in milliseconds; None if it did not."""
        return self.reply.waited_ms

    @property
    def replaced(self) -> tuple[Settled, ...]:
        """What a commit did to the deployments that it replaces."""
        return self.reply.replaced


@dataclass(frozen=True, slots=True)
class Denied:
    """The service, or this client on its behalf, said no."""

    request_id: str
    code: str
    message: str
    violations: tuple[Violation, ...] = ()
    reply: EnforcementReply | None = None
    """The whole answer; None where the request was never sent because it could only be refused."""

    @property
    def proceed(self) -> bool:
        """Whether the caller may go on: no."""
        return False

    @property
    def capacity(self) -> tuple[CapacityShortfall, ...]:
        """Where there is no room on nodes."""
        return self.reply.capacity if self.reply is not None else ()

    @property
    def remedy(self) -> str:
        """What to do about it, in words; empty for a code this version does not know."""
        known = CODES.get(self.code)
        return known.remedy if known else ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """There is no verdict. Asking again with the same ``request_id`` is always safe."""

    request_id: str
    reason: UnknownReason
    detail: str
    proceed: bool
    """What the caller chose with ``on_unknown``: True is open. False for facts: they are not known to be recorded."""


Outcome = Allowed | Denied | Unknown


class QuotaDenied(Exception):
    """A reservation used as a context manager was denied, or its hold could not be committed."""

    def __init__(self, outcome: Denied) -> None:
        """Keep the outcome for whoever explains the refusal."""
        super().__init__(f"{outcome.code}: {outcome.message}")
        self.outcome = outcome


class QuotaUnknown(Exception):
    """A reservation used as a context manager got no verdict (or no answer to its commit) and fails closed."""

    def __init__(self, outcome: Unknown) -> None:
        """Keep the outcome: its ``request_id`` is what to ask again with."""
        super().__init__(f"no verdict ({outcome.reason}): {outcome.detail}")
        self.outcome = outcome


def denied(request_id: str, code: Code, message: str) -> Denied:
    """Refuse on the service's behalf, with the code that it would give."""
    return Denied(request_id, code.code, message)


def judge(request_id: str, reply: EnforcementReply, *, proceed: bool) -> Outcome:
    """Turn a reply into an outcome.

    A repeated reserve answers its first verdict with the hold's present state: where the hold is expired or
    released there is nothing left to build on, so that is a denial (``HOLD_EXPIRED``).
    """
    if reply.code == DEADLINE_PASSED.code or reply.status >= 500:  # noqa: PLR2004  server errors in HTTP's numbering
        return Unknown(request_id, UnknownReason.NOT_DECIDED, f"{reply.code}: {reply.message}", proceed)
    if not reply.allowed:
        return Denied(request_id, reply.code or "", reply.message, reply.violations, reply)
    hold = reply.hold if reply.verb is Verb.RESERVE else None
    if hold is not None and hold.state in (HoldState.EXPIRED, HoldState.RELEASED):
        message = f"the hold of {hold.deployment} is {hold.state}; it was allowed once"
        return Denied(request_id, HOLD_EXPIRED.code, message, (), reply)
    return Allowed(request_id, reply)
