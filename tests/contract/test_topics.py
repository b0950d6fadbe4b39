"""The rules of the topic catalogue (DESIGN 3 and 4)."""

import re

from plimsoll_contracts.requests import MAX_REQUEST_BYTES
from plimsoll_contracts.topics import CATALOGUE, PARTITIONS, QUOTA_REQUESTS, REPLY_PREFIX, replies_topic


def test_names_are_unique_and_fit_kafka() -> None:
    names = [topic.name for topic in CATALOGUE]
    assert len(names) == len(set(names))
    for name in names:
        assert re.fullmatch(r"[a-z][a-z._]{0,248}", name)
        assert name.replace(".", "_") not in {other.replace(".", "_") for other in names if other != name}


def test_topics_of_one_key_have_equal_partition_counts() -> None:
    """Range assignment then brings all topics of a tenant to one process."""
    counts = {topic.key: {other.partitions for other in CATALOGUE if other.key == topic.key} for topic in CATALOGUE}
    assert all(len(found) == 1 for found in counts.values())
    assert counts["tenant"] == {PARTITIONS}


def test_no_topic_is_without_writers_and_readers() -> None:
    for topic in CATALOGUE:
        assert topic.producers, topic.name
        assert topic.consumers or topic.observers, topic.name


def test_a_message_type_has_one_model_and_ends_in_its_major_version() -> None:
    models: dict[str, object] = {}
    for topic in CATALOGUE:
        for kind, model in topic.messages.items():
            assert re.fullmatch(r"[a-z][a-z0-9_.]*\.v[1-9][0-9]*", kind)
            assert models.setdefault(kind, model) is model


def test_what_a_service_consumes_can_be_set_aside_and_read_again() -> None:
    names = {topic.name: topic for topic in CATALOGUE}
    for topic in CATALOGUE:
        if "quota-enforcer" not in topic.consumers:
            assert topic.dlq is None
            continue
        dlq = names[f"{topic.name}.dlq"]
        assert dlq == topic.dlq
        assert dlq.max_message_bytes > topic.max_message_bytes
        assert topic.retention is None or (dlq.retention is not None and dlq.retention > topic.retention)
        assert dlq.dlq is None


def test_what_is_kept_for_ever_is_compacted() -> None:
    for topic in CATALOGUE:
        assert topic.compacted == (topic.retention is None), topic.name


def test_a_request_fits_its_topic_with_room_for_headers() -> None:
    assert QUOTA_REQUESTS.max_message_bytes >= 2 * MAX_REQUEST_BYTES


def test_reply_topics_lie_under_the_prefix_and_nothing_else_does() -> None:
    replies = [topic for topic in CATALOGUE if "quota.reply.v1" in topic.messages]
    assert replies == [topic for topic in CATALOGUE if topic.name.startswith(REPLY_PREFIX)]
    for topic in replies:
        assert topic == replies_topic(topic.name.removeprefix(REPLY_PREFIX))
