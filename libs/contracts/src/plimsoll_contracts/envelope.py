"""How is a message wrapped: CloudEvents 1.0 in Kafka's binary mode, attributes in ``ce_*`` headers."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from plimsoll_contracts.codes import INVALID_REQUEST, Code

Headers = Sequence[tuple[str, bytes | None]]

_TYPE = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*\.v[1-9][0-9]*")
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
        EnvelopeError: the header is there but is not short UTF-8 text.
    """
    for key, value in reversed(headers):
        if key == name:
            try:
                text = (value or b"").decode()
            except UnicodeDecodeError:
                raise EnvelopeError(f"header {name} is not UTF-8") from None
            if not text or len(text) > _MAX_ATTRIBUTE:
                raise EnvelopeError(f"header {name} is empty or longer than {_MAX_ATTRIBUTE} characters")
            return text
    return None


def parse_headers(headers: Headers) -> Envelope:
    """Read the envelope of an event.

    Raises:
        EnvelopeError: a required attribute is missing or unreadable, or the specification is not 1.x.
    """
    values: dict[str, str] = {}
    for name in ("ce_specversion", "ce_id", "ce_type", "ce_source", "ce_time"):
        text = text_header(headers, name)
        if text is None:
            raise EnvelopeError(f"header {name} is missing")
        values[name] = text
    if not values["ce_specversion"].startswith("1."):
        raise EnvelopeError(f"ce_specversion {values['ce_specversion']!r} is not 1.x")
    if not _TYPE.fullmatch(values["ce_type"]):
        raise EnvelopeError(f"ce_type {values['ce_type']!r} does not end in its major version")
    try:
        time = datetime.fromisoformat(values["ce_time"])
    except ValueError:
        raise EnvelopeError(f"ce_time {values['ce_time']!r} is not an ISO 8601 instant") from None
    if time.tzinfo is None:
        raise EnvelopeError("ce_time has no offset from UTC")
    traceparent = text_header(headers, "traceparent")
    return Envelope(values["ce_id"], values["ce_type"], values["ce_source"], time, traceparent)
