-- The engine's own tables, in the schema of the service whose state they move with.

-- How far each partition has been applied. Advanced in the transaction that applies, so state and offset cannot
-- differ; the epoch grows with every claim, so a former owner's write misses.
CREATE TABLE consumer_offsets (
    consumer    text        NOT NULL,
    topic       text        NOT NULL,
    partition   integer     NOT NULL,
    next_offset bigint      NOT NULL CHECK (next_offset >= 0), -- the first offset not yet applied
    epoch       bigint      NOT NULL,
    owner       text        NOT NULL,
    claimed_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, topic, partition)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01);

-- Messages that are published once their transaction has committed; drained in order per shard, then deleted.
-- One row holds all that one transaction wrote for one shard and topic (`plimsoll_streams/parcels.py`).
CREATE TABLE outbox (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    shard      smallint    NOT NULL, -- of the key: one key's messages share one, and keep their order in it
    topic      text        NOT NULL,
    messages   integer     NOT NULL, -- how many
    parcel     bytea       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01);
-- It lives for 50 ms: packing it tighter costs more than writing it.
ALTER TABLE outbox ALTER COLUMN parcel SET STORAGE EXTERNAL;

-- Records that were stepped over, byte for byte; names of headers are bytes too, since a name may hold a zero byte.
CREATE TABLE dead_letters (
    id            bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer      text        NOT NULL,
    topic         text        NOT NULL,
    partition     integer     NOT NULL,
    "offset"      bigint      NOT NULL,
    key           bytea,
    value         bytea,
    header_names  bytea[]     NOT NULL,
    header_values bytea[]     NOT NULL,
    produced_at   timestamptz NOT NULL,
    code          text        NOT NULL,
    detail        text        NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    replayed_at   timestamptz
);
CREATE INDEX dead_letters_by_topic ON dead_letters (topic, id);
