"""What can go wrong, by code: HTTP status, title and remedy of every answer that is not a plain yes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from plimsoll_contracts.dimensions import Dimension, Unit


@dataclass(frozen=True, slots=True)
class Code:
    """One registered code.

    ``code`` is what travels (``X``, the HTTP status, three digits, six letters). 402 is a recoverable quota
    (pay, top up, wait); 403 is a limit or a missing entitlement; the two are never mixed up.
    """

    code: str
    name: str
    status: int
    title: str
    remedy: str

    def __str__(self) -> str:
        return self.code


_REGISTRY: dict[str, Code] = {}


def _code(code: str, name: str, title: str, remedy: str) -> Code:
    entry = Code(code=code, name=name, status=int(code[1:4]), title=title, remedy=remedy)
    if code in _REGISTRY:
        raise ValueError(f"{code} is registered twice")
    _REGISTRY[code] = entry
    return entry


_FREE = "Free some, ask for less, or have an operator raise the limit."

CPU_EXCEEDED: Final = _code("X403001CPUEXC", "CPU_EXCEEDED", "The cpu limit would be exceeded", _FREE)
MEMORY_EXCEEDED: Final = _code("X403002MEMEXC", "MEMORY_EXCEEDED", "The memory limit would be exceeded", _FREE)
DISK_EXCEEDED: Final = _code("X403003DSKEXC", "DISK_EXCEEDED", "The disk limit would be exceeded", _FREE)
STACKS_EXCEEDED: Final = _code("X403004STKEXC", "STACKS_EXCEEDED", "The limit of stacks would be exceeded", _FREE)
ENVIRONMENTS_EXCEEDED: Final = _code(
    "X403005ENVEXC", "ENVIRONMENTS_EXCEEDED", "The limit of environments would be exceeded", _FREE
)
APPS_EXCEEDED: Final = _code("X403006APPEXC", "APPS_EXCEEDED", "The limit of apps would be exceeded", _FREE)
VAPPS_EXCEEDED: Final = _code("X403007VAPEXC", "VAPPS_EXCEEDED", "The limit of vApps would be exceeded", _FREE)

NODE_CPU: Final = _code(
    "X403010NODCPU",
    "NODE_CPU",
    "The node has not enough cpu free",
    "Choose another node or a pool, or ask for less; the denial says what is free.",
)
NODE_MEMORY: Final = _code(
    "X403011NODMEM",
    "NODE_MEMORY",
    "The node has not enough memory free",
    "Choose another node or a pool, or ask for less; the denial says what is free.",
)
POOL_FULL: Final = _code(
    "X403012SWMPOL",
    "POOL_FULL",
    "The pool cannot hold the whole stack",
    "Add nodes, free some, or ask for fewer replicas.",
)
REPLICA_TOO_LARGE: Final = _code(
    "X403013SWMREP",
    "REPLICA_TOO_LARGE",
    "One replica fits on no eligible node",
    "Ask for smaller replicas, free a node, or look at the labels asked for.",
)
WAITER_AHEAD: Final = _code(
    "X403014WTRAHD",
    "WAITER_AHEAD",
    "The room is kept for a request that has waited long",
    "Wait with wait_seconds, or ask again: the message names the waiting request.",
)

NOT_ENTITLED: Final = _code(
    "X403020DEPFEA",
    "NOT_ENTITLED",
    "The tenant's plan does not include deployments",
    "Change the plan, or ask whoever owns the tenant's contract.",
)
QUOTA_BLOCKED: Final = _code(
    "X402001QTABLK",
    "QUOTA_BLOCKED",
    "Billing has blocked this dimension for the tenant",
    "Pay, top up or wait for the next cycle: it opens by itself as soon as billing says so.",
)
ENTITLEMENT_ENDED: Final = _code(
    "X403021ENTEND",
    "ENTITLEMENT_ENDED",
    "The tenant's entitlement has ended",
    "Renew the entitlement; what runs goes on, nothing new may grow.",
)

INVALID_BYTES: Final = _code(
    "X400126BYTVAL", "INVALID_BYTES", "Not an amount of bytes", 'Write "512m", "8g" or whole bytes.'
)
INVALID_CPU: Final = _code(
    "X400127CPUVAL", "INVALID_CPU", "Not an amount of cpu", 'Write "0.5" or "500m", or whole millicores.'
)
INVALID_COUNT: Final = _code("X400128CNTVAL", "INVALID_COUNT", "Not a count", "Write a whole number from 0.")
COMPOSE_INVALID: Final = _code(
    "X400129COMINV",
    "COMPOSE_INVALID",
    "The compose file cannot be read as Docker reads it",
    "See the detail: it names the service and the key. Send what docker compose config prints.",
)
RESOURCES_REQUIRED: Final = _code(
    "X422002RESREQ",
    "RESOURCES_REQUIRED",
    "A service says nothing of the resources it takes",
    "Give it a limit or a reservation of cpu and of memory: this platform takes none without.",
)
MULTIPLIER_OUT_OF_BOUNDS: Final = _code(
    "X422003MULBND",
    "MULTIPLIER_OUT_OF_BOUNDS",
    "A multiplier widens more than this platform allows",
    "Leave it out, or stay within the bounds that the detail names.",
)
UNDECODABLE: Final = _code(
    "X400101UNDECO",
    "UNDECODABLE",
    "The message is not JSON in UTF-8",
    "Send the JSON of the published schema.",
)
INVALID_REQUEST: Final = _code(
    "X400102REQINV",
    "INVALID_REQUEST",
    "The message breaks its schema",
    "See the detail: it names each field.",
)
UNKNOWN_FIELD: Final = _code(
    "X400103UNKFLD",
    "UNKNOWN_FIELD",
    "The request has a field nobody knows",
    "Remove it or correct its name: nothing that is not understood is enforced.",
)
INVALID_NAME: Final = _code(
    "X400104NAMINV",
    "INVALID_NAME",
    "A name is outside the grammar",
    "Use 1 to 63 of a-z, 0-9, dot, underscore and hyphen; begin and end with a letter or digit.",
)
SCOPE_IS_ROLLUP: Final = _code(
    "X400105SCPROL",
    "SCOPE_IS_ROLLUP",
    "A roll-up is shown, never limited or charged",
    "Name the tenant, one environment (tenant/env:NAME), or the stack in one environment.",
)
KEY_MISMATCH: Final = _code(
    "X400106KEYMIS",
    "KEY_MISMATCH",
    "The record's key is not the tenant in the body",
    "Produce with the tenant's name as the key: order and ownership rest on it.",
)
DIMENSION_UNKNOWN: Final = _code(
    "X400107DIMUNK",
    "DIMENSION_UNKNOWN",
    "No such dimension here",
    "See the list of dimensions in the reference.",
)
TOO_LARGE: Final = _code(
    "X413001TOOBIG", "TOO_LARGE", "The message is larger than allowed", "Send less in one message."
)
AMOUNT_OVERFLOW: Final = _code(
    "X422001AMTOVF",
    "AMOUNT_OVERFLOW",
    "The sum would no longer fit in 64 bits",
    "Check the unit of the amount: nothing real is this large.",
)

REVISIONS_SPENT: Final = _code(
    "X422004REVEND",
    "REVISIONS_SPENT",
    "The deployment has no revision after its present one",
    "Use another deployment id: revisions end at 2^53 - 1.",
)
MORE_ON_NODES: Final = _code(
    "X422005NODSUM",
    "MORE_ON_NODES",
    "More is said to be on nodes than the deployment reserves",
    "Name what of its reservation is on which node: what is on nodes is paid for by quota.",
)

NO_REPLY_TO: Final = _code(
    "X400110NOREPL", "NO_REPLY_TO", "The request names no topic for its reply", "Set the header reply_to."
)
REPLY_TO_REFUSED: Final = _code(
    "X403110REPREF",
    "REPLY_TO_REFUSED",
    "The reply topic is outside the allowed prefix",
    "Use a topic whose name begins with quota.replies.",
)
REPLY_TO_UNKNOWN: Final = _code(
    "X404110REPUNK",
    "REPLY_TO_UNKNOWN",
    "The reply topic or partition does not exist",
    "Have the topic created first; topics are never created by use.",
)
DEADLINE_PASSED: Final = _code(
    "X408001DEADLN",
    "DEADLINE_PASSED",
    "The request came after its deadline and was not decided",
    "Ask again with the same request_id and a later deadline.",
)
REQUEST_TOO_OLD: Final = _code(
    "X410001REQOLD",
    "REQUEST_TOO_OLD",
    "The request was issued before the window in which repeats are recognised",
    "Make a new request with a new request_id; an old one is never decided again.",
)
ISSUED_IN_FUTURE: Final = _code(
    "X400111ISSFUT",
    "ISSUED_IN_FUTURE",
    "The request was issued later than now by the database's clock",
    "Set the caller's clock right: repeats could not be recognised for as long as the window says.",
)
IDEMPOTENCY_MISMATCH: Final = _code(
    "X409001IDMMIS",
    "IDEMPOTENCY_MISMATCH",
    "This request_id was used with another body",
    "Use a new request_id for a new question; keep the body on a retry.",
)
HOLD_OPEN: Final = _code(
    "X409002HLDOPN",
    "HOLD_OPEN",
    "The deployment is already in an open hold",
    "Commit or release that hold, or name it in supersedes.",
)
HOLD_CLOSED: Final = _code(
    "X409003HLDCLO",
    "HOLD_CLOSED",
    "The hold is released or unknown, so nothing was settled",
    "If the deployment does run, settle it with adjust.",
)
HOLD_EXPIRED: Final = _code(
    "X409004HLDEXP",
    "HOLD_EXPIRED",
    "The reservation was allowed once, but its hold is no longer open",
    "Reserve again with a new request_id.",
)
WAIT_RELEASED: Final = _code(
    "X409007WAIREL",
    "WAIT_RELEASED",
    "The request was released while it waited for room",
    "Reserve again with a new request_id.",
)
REVISION_CONFLICT: Final = _code(
    "X409005REVCON",
    "REVISION_CONFLICT",
    "This revision is settled with other content",
    "Settle a higher revision; a census corrects the figure if the stored one is wrong.",
)
ENTITLEMENT_CONFLICT: Final = _code(
    "X409006ENTCON",
    "ENTITLEMENT_CONFLICT",
    "This entitlement_version is stored with another body",
    "Publish the snapshot again under a higher version.",
)

LIMIT_BELOW_USAGE: Final = _code(
    "X409010LIMUSG",
    "LIMIT_BELOW_USAGE",
    "The limit would lie below what is used and held",
    "Set it with force: what runs goes on, nothing new is allowed until usage has shrunk.",
)
LIMIT_VERSION_CONFLICT: Final = _code(
    "X412001LIMVER",
    "LIMIT_VERSION_CONFLICT",
    "The limits were changed by somebody else",
    "Read them again and repeat the change with their present ETag.",
)
IF_MATCH_REQUIRED: Final = _code(
    "X428001IFMREQ",
    "IF_MATCH_REQUIRED",
    "A limit that is set would be overwritten unseen",
    "Read the scope and send its ETag as If-Match, or `If-Match: *` to overwrite whatever is there.",
)
LIMIT_PLAN_CHANGED: Final = _code(
    "X412002LIMPLN",
    "LIMIT_PLAN_CHANGED",
    "What would be changed is no longer what the plan showed",
    "Look at the plan as it is now, and apply that one.",
)
LIMIT_REQUEST_DECIDED: Final = _code(
    "X409011REQDEC",
    "LIMIT_REQUEST_DECIDED",
    "The request for a limit was decided before",
    "Set the limit itself, or have it asked for again.",
)
LIMIT_REQUESTS_FULL: Final = _code(
    "X409012REQFUL",
    "LIMIT_REQUESTS_FULL",
    "The tenant has too many open requests for limits",
    "Have some of them decided first.",
)
OWN_LIMIT_REQUEST: Final = _code(
    "X403031OWNREQ",
    "OWN_LIMIT_REQUEST",
    "Nobody approves what they have asked for themselves",
    "Have somebody else approve it.",
)
NAME_RESERVED: Final = _code(
    "X400112NAMRES",
    "NAME_RESERVED",
    "This name stands for the global defaults",
    "Give the tenant another name: limits of a tenant called so could not be told from the defaults.",
)
LIMIT_NOT_HERE: Final = _code(
    "X400108LIMSCP",
    "LIMIT_NOT_HERE",
    "A limit on this dimension means nothing at this scope",
    "Set it on the tenant, or the environment that holds the stacks.",
)
TOKEN_MISSING: Final = _code(
    "X401001TOKMIS",
    "TOKEN_MISSING",
    "The request carries no token",
    "Send a token as `Authorization: Bearer ...`; `plimsoll token` makes one for the local stack.",
)
TOKEN_INVALID: Final = _code(
    "X401002TOKINV",
    "TOKEN_INVALID",
    "The token is not accepted here",
    "Get a token of this platform's issuer for this audience; the detail says what was wrong with this one.",
)
TOKEN_EXPIRED: Final = _code(
    "X401003TOKEXP",
    "TOKEN_EXPIRED",
    "The token has expired",
    "Get a new one; `plimsoll token` makes one for the local stack.",
)
SCOPE_MISSING: Final = _code(
    "X403030SCPMIS",
    "SCOPE_MISSING",
    "The token does not allow this",
    "Get a token whose scope claim has the word that the detail names.",
)
BY_NOT_TAKEN: Final = _code(
    "X400109BYNOTT",
    "BY_NOT_TAKEN",
    "Who does it is not for the request to say",
    "Leave out `by`: with authentication on, it is the token's subject.",
)
KEYS_UNAVAILABLE: Final = _code(
    "X503003KEYUNA",
    "KEYS_UNAVAILABLE",
    "The keys that tokens are checked with could not be read yet",
    "Try again in a moment; the service's log says why they cannot be read.",
)
NOT_FOUND: Final = _code("X404001NOTFND", "NOT_FOUND", "There is no such thing", "Check the name.")
NOTHING_KNOWN_THEN: Final = _code(
    "X404002NOTYET",
    "NOTHING_KNOWN_THEN",
    "Nothing was known of the tenant at that instant",
    "Ask for a later instant: the detail says since when it is known.",
)
BEFORE_RETENTION: Final = _code(
    "X410002HISOLD",
    "BEFORE_RETENTION",
    "That instant lies before what is kept",
    "Ask for a later instant: the detail says from when on history is kept.",
)
HISTORY_TOO_LONG: Final = _code(
    "X422010HISLNG",
    "HISTORY_TOO_LONG",
    "There is too much history to be read for one answer",
    "Ask for less: an earlier instant, or a shorter time back.",
)
METHOD_NOT_ALLOWED: Final = _code(
    "X405001METHOD", "METHOD_NOT_ALLOWED", "This address does not take that method", "See the API reference."
)
GATE_UNAVAILABLE: Final = _code(
    "X503001GATUNA",
    "GATE_UNAVAILABLE",
    "No answer came in time, so the verdict is unknown",
    "Retry with the same request_id; what Unknown means is the caller's choice.",
)
UNAVAILABLE: Final = _code(
    "X503002UNAVAI",
    "UNAVAILABLE",
    "Something that the service needs does not answer",
    "Try again in a moment: nothing was changed. /internal/ready says what is away.",
)
INTERNAL: Final = _code(
    "X500001INTERN", "INTERNAL", "An error of ours", "Report it with the request id; nothing was changed."
)
POISON: Final = _code(
    "X500002POISON",
    "POISON",
    "Handling this record failed three times by itself",
    "See the error beside the dead letter; replay it once the cause is mended.",
)

CODES: Final[Mapping[str, Code]] = _REGISTRY
"""Every code by what travels."""

EXCEEDED: Final[Mapping[Dimension, Code]] = {
    Dimension.CPU: CPU_EXCEEDED,
    Dimension.MEMORY: MEMORY_EXCEEDED,
    Dimension.DISK: DISK_EXCEEDED,
    Dimension.STACKS: STACKS_EXCEEDED,
    Dimension.ENVIRONMENTS: ENVIRONMENTS_EXCEEDED,
    Dimension.APPS: APPS_EXCEEDED,
    Dimension.VAPPS: VAPPS_EXCEEDED,
}

INVALID_AMOUNT: Final[Mapping[Unit, Code]] = {
    Unit.MILLICORES: INVALID_CPU,
    Unit.BYTES: INVALID_BYTES,
    Unit.COUNT: INVALID_COUNT,
}
