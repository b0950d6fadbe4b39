"""How is a hold kept for exactly as long as the work behind it: commit on success, release on error."""

import asyncio
from collections.abc import Generator, Mapping
from types import TracebackType
from typing import Any, Protocol, Self, Unpack

from plimsoll_client.fields import AnyNodes, CommitFields
from plimsoll_client.outcomes import Allowed, Denied, OnUnknown, Outcome, QuotaDenied, QuotaUnknown, Unknown
from plimsoll_contracts.codes import HOLD_CLOSED


class Asker(Protocol):
    """What a reservation needs of the client."""

    async def reserve_once(self, body: Mapping[str, Any], on_unknown: OnUnknown) -> Outcome:
        """Send the reserve."""

    async def commit(
        self, *, tenant: str, hold: str, revision: int | None = None, **fields: Unpack[CommitFields]
    ) -> Outcome:
        """Settle the hold."""

    async def release(self, *, tenant: str, hold: str) -> Outcome:
        """Close the hold."""

    async def adjust_as_reserved(self, body: Mapping[str, Any], revision: int | None, **more: Any) -> Outcome:
        """Settle what was asked for, without a hold."""

    async def adjust(self, *, tenant: str, deployment: str, footprint: None, revision: int | None = None) -> Outcome:
        """Settle that a deployment is gone."""

    async def abandon(self, tenant: str, hold: str) -> None:
        """Release without waiting."""


class Reservation:
    """One reserve. Awaiting it gives the outcome; awaiting it again asks again under the same request id.

    As ``async with client.reserve(...) as held``:

    - Denied raises ``QuotaDenied`` and Unknown with ``on_unknown="closed"`` raises ``QuotaUnknown``: the body does
      not run. Unknown with ``"open"`` runs it, and ``held.outcome`` tells.
    - When the body ends the hold is committed, at ``held.revision`` if the body set it. When the body raises, the
      hold is released and the body's error goes on; a release that gets no answer leaves the hold to its expiry.
    - A commit that is refused raises ``QuotaDenied``; one without an answer raises ``QuotaUnknown`` unless
      ``on_unknown`` is ``"open"``. The deployment runs then and is not known to be recorded: commit again.
    - After an Unknown reserve the service may know no hold. What runs is then told with ``adjust``.
    - Whoever is cancelled while it waits for room waits no more: the request is released.
    """

    def __init__(self, asker: Asker, body: Mapping[str, Any], on_unknown: OnUnknown) -> None:
        """Keep the request; nothing is sent before it is awaited or entered."""
        self._asker = asker
        self._body = body
        self._on_unknown = on_unknown
        self.outcome: Outcome | None = None
        """The answer to the reserve."""
        self.settled: Outcome | None = None
        """The answer to the commit or release on the way out."""
        self.revision: int | None = None
        """The deployment's revision to commit at; None is its present one + 1."""
        self.replaced: dict[str, int] = {}
        """At which revision each replaced deployment ended; those not named end at their present one + 1."""
        self.nodes: AnyNodes | None = None
        """Where it really runs, if not as reserved: amounts by node."""

    @property
    def hold(self) -> str:
        """The id of the hold: the request id of this reserve."""
        return str(self._body["request_id"])

    def __await__(self) -> Generator[Any, None, Outcome]:
        return self._ask().__await__()

    async def _ask(self) -> Outcome:
        try:
            self.outcome = await self._asker.reserve_once(self._body, self._on_unknown)
        except asyncio.CancelledError:
            # It may be let in after its caller has gone, and would then hold room that nobody uses.
            if self._waits:
                await self._asker.abandon(self._body["tenant"], self.hold)
            raise
        return self.outcome

    @property
    def _waits(self) -> bool:
        return bool(self._body.get("wait_seconds"))

    async def __aenter__(self) -> Self:
        try:
            outcome = await self._ask()
        except asyncio.CancelledError:
            if not self._waits:  # it may be held all the same, for nobody
                await self._asker.abandon(self._body["tenant"], self.hold)
            raise
        if isinstance(outcome, Denied):
            raise QuotaDenied(outcome)
        if isinstance(outcome, Unknown) and not outcome.proceed:
            # It may have been decided all the same, and would then block this deployment until it expires.
            await self._asker.abandon(self._body["tenant"], self.hold)
            raise QuotaUnknown(outcome)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.settled = await self._asker.release(tenant=self._body["tenant"], hold=self.hold)
            return
        self.settled = await self._settle()
        if isinstance(self.settled, Denied):
            raise QuotaDenied(self.settled)
        if isinstance(self.settled, Unknown) and self._on_unknown == "closed":
            raise QuotaUnknown(self.settled)

    async def _settle(self) -> Outcome:
        body, tenant = self._body, self._body["tenant"]
        where: CommitFields = {"nodes": self.nodes} if self.nodes is not None else {}
        told: CommitFields = {**where, "replaced": self.replaced} if self.replaced else where
        outcome = await self._asker.commit(tenant=tenant, hold=self.hold, revision=self.revision, **told)
        unheld = isinstance(self.outcome, Unknown) and isinstance(outcome, Denied) and outcome.code == HOLD_CLOSED.code
        if not unheld:
            return outcome
        if self._waits:  # it may wait still
            await self._asker.abandon(tenant, self.hold)
        outcome = await self._asker.adjust_as_reserved(body, self.revision, **where)
        for name in body.get("replaces", ()):
            ended = self.replaced.get(name)
            gone = await self._asker.adjust(tenant=tenant, deployment=name, footprint=None, revision=ended)
            outcome = outcome if isinstance(gone, Allowed) else gone
        return outcome
