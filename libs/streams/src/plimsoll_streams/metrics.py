"""Which figures does the engine export: declared here, counted once a batch, never once a record."""

from plimsoll_contracts.topics import CATALOGUE
from plimsoll_runtime import metrics
from plimsoll_streams.ownership import Phase

OTHER = "other"
"""The label of a topic outside the catalogue (tests have some)."""

_TOPICS = tuple(topic.name for topic in CATALOGUE if topic.dead_lettered)
_BY_TOPIC = {"topic": (*_TOPICS, OTHER)}

records = metrics.counter("streams_records_total", "Records applied.", labels=_BY_TOPIC)
batches = metrics.counter("streams_batches_total", "Transactions committed.")
batch_seconds = metrics.histogram(
    "streams_batch_seconds",
    "Seconds from the first lock of a batch to its replies being handed over.",
    buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10),
)
claims = metrics.counter("streams_claims_total", "Partitions claimed.", labels=_BY_TOPIC)
fences = metrics.counter(
    "streams_fences_total",
    "Batches that lost their partition to a later claim; more than a few after a rebalance means two owners.",
    labels=_BY_TOPIC,
)
replayed = metrics.counter("streams_replayed_records_total", "Records that came again and were passed over.")
gaps = metrics.counter(
    "streams_gaps_total",
    "Offsets that were expected and not in the log; only compaction and transactions make them.",
    labels=_BY_TOPIC,
)
dead_letters = metrics.counter(
    "streams_dead_letters_total",
    "Records set aside: invalid by their contract, or failing by a bug of ours.",
    labels={**_BY_TOPIC, "reason": ("invalid", "bug")},
)
bugs = metrics.counter("streams_bugs_total", "Tries at a single record that ended in a bug.", labels=_BY_TOPIC)
retries = metrics.counter(
    "streams_retries_total", "Batches or claims to be tried again.", labels={"cause": ("database", "broker", "other")}
)
partitions = metrics.gauge(
    "streams_partitions",
    "Partitions of this process by standing; refused and paused ones wait for an operator.",
    labels={**_BY_TOPIC, "phase": tuple(Phase)},
)
lag_records = metrics.gauge("streams_lag_records", "Records in the log and not yet applied.", labels=_BY_TOPIC)
lag_seconds = metrics.gauge(
    "streams_lag_seconds", "Age of the last applied record while others wait behind it, else 0.", labels=_BY_TOPIC
)
progress_seconds = metrics.gauge(
    "streams_stalled_seconds", "Seconds since the loop last got on, or knew why it could not."
)
loop_lag = metrics.gauge("streams_event_loop_lag_seconds", "Worst delay of the event loop in the last 5 s.")
outage = metrics.gauge("streams_outage", "1 while the broker or the database is known to be away.")
outbox_rows = metrics.gauge("streams_outbox_rows", "Messages waiting to be published.")
outbox_oldest = metrics.gauge("streams_outbox_oldest_seconds", "Age of the oldest message waiting, else 0.")
outbox_published = metrics.counter("streams_outbox_published_total", "Messages published and acknowledged.")
outbox_failures = metrics.counter("streams_outbox_failures_total", "Messages that could not be published yet.")
replies = metrics.counter(
    "streams_replies_total",
    "Replies by what became of them; a lost one costs its caller a retry.",
    labels={"outcome": ("sent", "failed", "dropped")},
)


def label(topic: str) -> str:
    """Return the label value of a topic."""
    return topic if topic in _TOPICS else OTHER
