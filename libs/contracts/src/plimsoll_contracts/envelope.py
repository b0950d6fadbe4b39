"""How is a message wrapped: CloudEvents 1.0 in Kafka's binary mode, attributes in ``ce_*`` headers."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from plimsoll_contracts.codes import INVALID_REQUEST, Code

Headers = Sequence[tuple[str, bytes | None]]

_TYPE = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*\.v[1-9][0-9]*")
_SPECIFICATION = re.compile(r"1\.[0-9]{1,3}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_MAX_ATTRIBUTE = 256


class EnvelopeError(ValueError):
    """The ``ce_*`` headers of a record are missing, unreadable or of another specification."""

    def __init__(self, detail: str) -> None:
        """Keep the sentence; the code is always that of a broken schema."""
        super().__init__(detail)
        self.code: Code = INVALID_REQUEST
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Envelope:
    """The attributes of one event: ``id`` with ``source`` names it for good, ``type`` ends in its major version."""

    id: str
    type: str
    source: str
    time: datetime
    traceparent: str | None = None

    def headers(self) -> list[tuple[str, bytes]]:
        """Return the record headers that carry this envelope."""
        attributes = {
            "ce_specversion": "1.0",
            "ce_id": self.id,
            "ce_type": self.type,
            "ce_source": self.source,
            "ce_time": self.time.isoformat(),
            "content-type": "application/json",
        }
        if self.traceparent is not None:
            attributes["traceparent"] = self.traceparent
        return [(name, value.encode()) for name, value in attributes.items()]


def text_header(headers: Headers, name: str) -> str | None:
    """Return one header as text, the last where it is repeated, or None where it is absent.

    Raises:
        EnvelopeError: the header is there but is not one short line of UTF-8 text.
    """
    for key, value in reversed(headers):
        if key == name:
            try:
                text = (value or b"").decode()
            except UnicodeDecodeError:
                raise EnvelopeError(f"header {name} is not UTF-8") from None
            if not text or len(text) > _MAX_ATTRIBUTE:
                raise EnvelopeError(f"header {name} is empty or longer than {_MAX_ATTRIBUTE} characters")
            if not text.isprintable():
                raise EnvelopeError(f"header {name} has characters that do not print")
            return text
    return None


def parse_headers(headers: Headers) -> Envelope:
    """Read the envelope of an event. A broken ``traceparent`` is no breach: it is left out, as W3C asks.

    Raises:
        EnvelopeError: a required attribute is missing or unreadable, or the specification is not 1.x.
    """
    values: dict[str, str] = {}
    for name in ("ce_specversion", "ce_id", "ce_type", "ce_source", "ce_time"):
        text = text_header(headers, name)
        if text is None:
            raise EnvelopeError(f"header {name} is missing")
        values[name] = text
    if not _SPECIFICATION.fullmatch(values["ce_specversion"]):
        raise EnvelopeError(f"ce_specversion {values['ce_specversion']!r} is not 1.x")
    if not _TYPE.fullmatch(values["ce_type"]):
        raise EnvelopeError(f"ce_type {values['ce_type']!r} does not end in its major version")
    time = _time(values["ce_time"])
    return Envelope(values["ce_id"], values["ce_type"], values["ce_source"], time, _traceparent(headers))


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is not None:
            return time.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise EnvelopeError(f"ce_time {text!r} is not an ISO 8601 instant with its offset from UTC")


def _traceparent(headers: Headers) -> str | None:
    try:
        text = text_header(headers, "traceparent")
    except EnvelopeError:
        return None
    return text if text is not None and _TRACEPARENT.fullmatch(text) else None
