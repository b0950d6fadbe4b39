"""How do many messages of one topic become one row of the outbox, and messages again: lengths first, then bytes."""

import struct
from collections.abc import Iterator, Sequence

from plimsoll_streams.records import OutboxMessage

PARCEL_BYTES = 256 * 1024
"""About how much goes into one row: a page of rows is held in memory at once."""
ABSENT = -1
"""The length of what is None."""


def parcels(messages: Sequence[OutboxMessage]) -> Iterator[tuple[int, bytes]]:
    """Pack messages in their order; yield how many, and the bytes."""
    begin = size = 0
    for end, message in enumerate(messages):
        size += len(message.key or b"") + len(message.value or b"")
        if size > PARCEL_BYTES and end > begin:
            yield end - begin, pack(messages[begin:end])
            begin, size = end, len(message.value or b"")
    yield len(messages) - begin, pack(messages[begin:])


def pack(messages: Sequence[OutboxMessage]) -> bytes:
    """Write key, value and headers of each message one after the other."""
    fields: list[bytes | None] = []
    counts: list[int] = []
    for message in messages:
        fields += (message.key, message.value)
        counts.append(len(message.headers))
        for name, value in message.headers:
            fields += (name.encode(), value)
    lengths = [ABSENT if field is None else len(field) for field in fields]
    head = struct.pack(f"<{2 + len(counts) + len(lengths)}i", len(counts), len(lengths), *counts, *lengths)
    return b"".join((head, *filter(None, fields)))


def unpack(topic: str, parcel: bytes) -> Iterator[OutboxMessage]:
    """Read what `pack` wrote."""
    messages, count = struct.unpack_from("<2i", parcel)
    counts = struct.unpack_from(f"<{messages}i", parcel, 8)
    at = 8 + 4 * (messages + count)
    fields: list[bytes | None] = []
    for length in struct.unpack_from(f"<{count}i", parcel, 8 + 4 * messages):
        fields.append(None if length == ABSENT else parcel[at : at + length])
        at += max(0, length)
    following = iter(fields)
    for headers in counts:
        key, value = next(following), next(following)
        named = [((next(following) or b"").decode(), next(following)) for _ in range(headers)]
        yield OutboxMessage(topic, key, value, tuple(named))
