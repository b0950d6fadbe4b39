"""What is asked over HTTP: the requests of the topic, which the service names and dates itself."""

from typing import Any, Literal

from pydantic.json_schema import SkipJsonSchema

from plimsoll_contracts.api import Problem
from plimsoll_contracts.enforcement import EnforcementReply
from plimsoll_contracts.fields import Id, Request
from plimsoll_contracts.requests import (
    AdjustRequest,
    AnyRequest,
    CheckRequest,
    CommitRequest,
    ReleaseRequest,
    ReserveRequest,
)

NEW_DEPLOYMENT = "plimsoll-check"
"""The deployment that a check without a name asks about: one that does not exist."""


class _Unnamed(Request):
    """What stands in a request on the topic and is no part of its body over HTTP."""

    verb: SkipJsonSchema[None] = None
    request_id: SkipJsonSchema[None] = None
    issued_at: SkipJsonSchema[None] = None


class CheckBody(_Unnamed, CheckRequest):  # type: ignore[misc]  # left out, not of another type
    """Would this be allowed now? Advisory: nothing is stored and nothing is held."""

    deployment: Id = NEW_DEPLOYMENT


class ReserveBody(_Unnamed, ReserveRequest):  # type: ignore[misc]  # left out, not of another type
    """Check and hold in one step, at every scope or none."""


class CommitBody(_Unnamed, CommitRequest):  # type: ignore[misc]  # left out, not of another type
    """Say that the deployment runs as reserved."""


class ReleaseBody(_Unnamed, ReleaseRequest):  # type: ignore[misc]  # left out, not of another type
    """Give a hold back; nothing was deployed."""


class AdjustBody(_Unnamed, AdjustRequest):  # type: ignore[misc]  # left out, not of another type
    """Say what a deployment takes now. A footprint of null means that it is gone."""


AnyBody = CheckBody | ReserveBody | CommitBody | ReleaseBody | AdjustBody

REQUESTS: dict[type[AnyBody], tuple[type[AnyRequest], Literal["check", "reserve", "commit", "release", "adjust"]]] = {
    CheckBody: (CheckRequest, "check"),
    ReserveBody: (ReserveRequest, "reserve"),
    CommitBody: (CommitRequest, "commit"),
    ReleaseBody: (ReleaseRequest, "release"),
    AdjustBody: (AdjustRequest, "adjust"),
}


def request_of(body: AnyBody, **named: Any) -> AnyRequest:
    """Make the request that a body asks for, under its ``request_id`` and ``issued_at``."""
    model, verb = REQUESTS[type(body)]
    given = body.model_dump(exclude_unset=True, exclude={"verb", "request_id", "issued_at"})
    if isinstance(body, CheckBody):
        given["deployment"] = body.deployment
    return model.model_validate({**given, **named, "verb": verb})


class RefusedVerb(Problem):
    """The problem document of a verb that was denied, with the whole reply."""

    reply: EnforcementReply
