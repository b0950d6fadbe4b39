-- The model of quota enforcement. Truth is charges, open holds and measurements; usage is a cache of them.
-- Names sort as bytes (collation "C"), so that guards are locked in one order by code and by SQL alike.
-- Absent environments and stacks are empty strings: they are part of keys.

-- The guard: whoever changes a tenant's state locks its row first, and raises seq.
CREATE TABLE tenants (
    tenant           text COLLATE "C" PRIMARY KEY,
    seq              bigint NOT NULL DEFAULT 0,
    defaults_version bigint NOT NULL DEFAULT 0, -- the defaults under which limits crossed were last told
    known_since      timestamptz NOT NULL DEFAULT clock_timestamp() -- before it nothing was recorded of the tenant
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

-- One row: what is the same for everybody. Taken after every guard, by whoever changes the defaults.
CREATE TABLE platform (
    one              boolean PRIMARY KEY DEFAULT true CHECK (one),
    defaults_version bigint NOT NULL DEFAULT 0
);
INSERT INTO platform DEFAULT VALUES;

CREATE TABLE charges (
    tenant            text COLLATE "C" NOT NULL,
    deployment        text COLLATE "C" NOT NULL,
    revision          bigint NOT NULL CHECK (revision >= 0),
    gone              boolean NOT NULL, -- a tombstone: it counts nothing and keeps the revision
    environment       text COLLATE "C" NOT NULL,
    stack             text COLLATE "C" NOT NULL,
    app               text COLLATE "C" NOT NULL,
    cpu_reserved      bigint NOT NULL CHECK (cpu_reserved >= 0), -- raw: before any multiplier
    cpu_limit         bigint NOT NULL CHECK (cpu_limit >= 0),
    memory_reserved   bigint NOT NULL CHECK (memory_reserved >= 0),
    memory_limit      bigint NOT NULL CHECK (memory_limit >= 0),
    disk              bigint NOT NULL CHECK (disk >= 0),
    vapps             bigint NOT NULL CHECK (vapps >= 0),
    reservation_milli integer NOT NULL,
    limit_milli       integer NOT NULL,
    nodes             jsonb,           -- [[node, millicores, bytes], ...]
    changed_seq       bigint NOT NULL, -- of the tenant, at the last settle
    changed_at        timestamptz NOT NULL,
    omitted_since     timestamptz,     -- a census did not name it
    PRIMARY KEY (tenant, deployment)
) WITH (fillfactor = 80);

CREATE TABLE holds (
    tenant            text COLLATE "C" NOT NULL,
    request_id        text COLLATE "C" NOT NULL,
    deployment        text COLLATE "C" NOT NULL,
    environment       text COLLATE "C" NOT NULL,
    stack             text COLLATE "C" NOT NULL,
    app               text COLLATE "C" NOT NULL,
    cpu_reserved      bigint NOT NULL CHECK (cpu_reserved >= 0),
    cpu_limit         bigint NOT NULL CHECK (cpu_limit >= 0),
    memory_reserved   bigint NOT NULL CHECK (memory_reserved >= 0),
    memory_limit      bigint NOT NULL CHECK (memory_limit >= 0),
    disk              bigint NOT NULL CHECK (disk >= 0),
    vapps             bigint NOT NULL CHECK (vapps >= 0),
    reservation_milli integer NOT NULL,
    limit_milli       integer NOT NULL,
    replaces          text[] NOT NULL, -- deployments that end with its commit
    surge             boolean NOT NULL,
    nodes             jsonb,
    expires_at        timestamptz NOT NULL,
    state             text NOT NULL CHECK (state IN ('open', 'committed', 'released', 'expired')),
    settled_revision  bigint,
    settled_outcome   text,
    changed_at        timestamptz NOT NULL,
    PRIMARY KEY (tenant, request_id)
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX holds_one_open_per_deployment ON holds (tenant, deployment) WHERE state = 'open';
CREATE INDEX holds_to_expire ON holds (expires_at) WHERE state = 'open';

-- Figures by gauge, in the order cpu reserved, cpu burst, memory reserved, memory burst, disk, vapps, stacks,
-- environments, apps; usage_by_dimension below spells them out.
CREATE TABLE usage (
    tenant      text COLLATE "C" NOT NULL,
    environment text COLLATE "C" NOT NULL,
    stack       text COLLATE "C" NOT NULL,
    used        bigint[] NOT NULL CHECK (cardinality(used) = 9 AND 0 <= ALL (used)),
    held        bigint[] NOT NULL CHECK (cardinality(held) = 9 AND 0 <= ALL (held)),
    changed_at  timestamptz NOT NULL,
    PRIMARY KEY (tenant, environment, stack)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);

CREATE VIEW usage_by_dimension AS
SELECT u.tenant, u.environment, u.stack, g.dimension, g.basis, u.used[g.place] AS used, u.held[g.place] AS held, u.changed_at
FROM usage u
CROSS JOIN (VALUES
    (1, 'cpu', 'reserved'), (2, 'cpu', 'burst'), (3, 'memory', 'reserved'), (4, 'memory', 'burst'),
    (5, 'disk', NULL), (6, 'vapps', NULL), (7, 'stacks', NULL), (8, 'environments', NULL), (9, 'apps', NULL)
) AS g (place, dimension, basis);

CREATE TABLE measured (
    tenant      text COLLATE "C" NOT NULL,
    environment text COLLATE "C" NOT NULL,
    stack       text COLLATE "C" NOT NULL,
    bytes       bigint, -- null is unknown, never 0
    measured_at timestamptz NOT NULL,
    method      text NOT NULL,
    complete    boolean NOT NULL,
    term        bigint NOT NULL,
    scan        bigint NOT NULL,
    PRIMARY KEY (tenant, environment, stack)
);

-- A limit: an amount, or unlimited (value null). An absent row inherits.
CREATE TABLE limits (
    tenant      text COLLATE "C" NOT NULL,
    environment text COLLATE "C" NOT NULL,
    stack       text COLLATE "C" NOT NULL,
    dimension   text NOT NULL,
    value       bigint CHECK (value >= 0),
    mode        text NOT NULL CHECK (mode IN ('enforce', 'shadow')),
    version     bigint NOT NULL,
    expires_at  timestamptz,
    set_by      text NOT NULL,
    reason      text NOT NULL,
    set_at      timestamptz NOT NULL,
    PRIMARY KEY (tenant, environment, stack, dimension)
);
CREATE INDEX limits_to_expire ON limits (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE defaults (
    dimension   text PRIMARY KEY,
    value       bigint CHECK (value >= 0),
    mode        text NOT NULL CHECK (mode IN ('enforce', 'shadow')),
    version     bigint NOT NULL,
    expires_at  timestamptz,
    set_by      text NOT NULL,
    reason      text NOT NULL,
    set_at      timestamptz NOT NULL
);

-- Every change of a limit; the tenant of a global default is empty. Versions grow also across unset and set, by one:
-- what was set before a change is the row of the version below.
CREATE TABLE limit_history (
    id          bigint GENERATED ALWAYS AS IDENTITY UNIQUE, -- for pages, newest first
    tenant      text COLLATE "C" NOT NULL,
    environment text COLLATE "C" NOT NULL,
    stack       text COLLATE "C" NOT NULL,
    dimension   text NOT NULL,
    version     bigint NOT NULL,
    is_set      boolean NOT NULL, -- false: unset, so that it inherits from here on
    value       bigint,
    mode        text NOT NULL,
    expires_at  timestamptz,
    changed_by  text NOT NULL,
    reason      text NOT NULL,
    changed_at  timestamptz NOT NULL,
    seq         bigint,
    PRIMARY KEY (tenant, environment, stack, dimension, version)
);
CREATE INDEX limit_history_newest ON limit_history (tenant, id);

-- What was answered to a change over HTTP that its sender may repeat; null where that is kept elsewhere.
CREATE TABLE idempotency_keys (
    principal   text COLLATE "C" NOT NULL, -- empty where authentication is off
    key         text COLLATE "C" NOT NULL,
    fingerprint bytea NOT NULL,
    reply       text,
    taken_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (principal, key)
);
CREATE INDEX idempotency_keys_old ON idempotency_keys (taken_at);

CREATE TABLE limit_requests (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant         text COLLATE "C" NOT NULL,
    environment    text COLLATE "C" NOT NULL,
    stack          text COLLATE "C" NOT NULL,
    dimension      text NOT NULL,
    value          bigint CHECK (value >= 0), -- null is unlimited, here and in granted
    state          text NOT NULL CHECK (state IN ('asked', 'approved', 'rejected')),
    asked_by       text NOT NULL,
    asked_reason   text NOT NULL,
    asked_at       timestamptz NOT NULL,
    decided_by     text,
    decided_reason text,
    decided_at     timestamptz,
    granted        bigint CHECK (granted >= 0), -- what was set, where it was approved
    expires_at     timestamptz,
    limit_version  bigint,
    CHECK ((state = 'asked') = (decided_at IS NULL) AND (state = 'approved') = (limit_version IS NOT NULL))
);
CREATE INDEX limit_requests_of_tenant ON limit_requests (tenant, id);

-- Which limits are exceeded and which thresholds are reached now, as last told: every crossing is told once.
CREATE TABLE over_limits (
    tenant      text COLLATE "C" NOT NULL,
    environment text COLLATE "C" NOT NULL,
    stack       text COLLATE "C" NOT NULL,
    gauge       smallint NOT NULL, -- as in usage, from 0
    threshold   text NOT NULL,     -- 'over' is the limit itself
    since       timestamptz NOT NULL,
    PRIMARY KEY (tenant, environment, stack, gauge, threshold)
);

-- The projection of what billing last said; ended is a tombstone and denies.
CREATE TABLE entitlements (
    tenant      text COLLATE "C" PRIMARY KEY,
    version     bigint NOT NULL,
    fingerprint bytea NOT NULL,
    plan        text NOT NULL,
    limits      jsonb NOT NULL, -- our dimensions only; null is unlimited
    deployments boolean NOT NULL,
    blocked     text[] NOT NULL,
    ended       boolean NOT NULL,
    snapshot    text NOT NULL,
    projected_at timestamptz NOT NULL
);

-- What was asked, what was answered, and what it was decided on: seq names the tenant's charges, holds and limits,
-- the two versions name the rest.
CREATE TABLE decisions (
    day                 date NOT NULL,
    tenant              text COLLATE "C" NOT NULL,
    request_id          text COLLATE "C" NOT NULL,
    verb                text NOT NULL,
    fingerprint         bytea NOT NULL,
    request             text NOT NULL,
    reply               text NOT NULL,
    hold                text,
    allowed             boolean NOT NULL,
    code                text,
    fail_open           text[] NOT NULL,
    seq                 bigint NOT NULL,
    entitlement_version bigint,
    defaults_version    bigint NOT NULL,
    decided_at          timestamptz NOT NULL,
    PRIMARY KEY (tenant, request_id, day) -- day last: a look-up knows the other two, and a span of days
) PARTITION BY RANGE (day);
-- For pages of the log, of one tenant and of all; the second only grows at its end, which costs next to nothing.
CREATE INDEX decisions_of_tenant ON decisions (tenant, decided_at, request_id);
CREATE INDEX decisions_in_time ON decisions (decided_at, tenant, request_id);

-- Every settle, hold edge and measurement: usage at any instant, and what-if.
CREATE TABLE changes (
    day               date NOT NULL,
    tenant            text COLLATE "C" NOT NULL,
    seq               bigint NOT NULL,
    at                timestamptz NOT NULL,
    kind              text NOT NULL,
    deployment        text NOT NULL,
    environment       text NOT NULL,
    stack             text NOT NULL,
    app               text NOT NULL,
    amounts           bigint[] NOT NULL, -- raw, as the columns of charges
    reservation_milli integer NOT NULL,
    limit_milli       integer NOT NULL,
    hold              text NOT NULL,
    hold_state        text,
    revision          bigint,
    gone              boolean NOT NULL,
    replaces          text[],        -- null is none
    surge             boolean NOT NULL,
    request_id        text NOT NULL, -- the request that caused it; empty for facts, expiries and measurements
    PRIMARY KEY (tenant, seq, day)
) PARTITION BY RANGE (day);

-- What a step of history is about: of all steps about one subject the last one says how it stands.
CREATE FUNCTION history_subject(kind text, deployment text, hold text, environment text, stack text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE kind WHEN 'settled' THEN 'charge ' || deployment WHEN 'measured' THEN 'disk ' || environment || '/' || stack
        ELSE 'hold ' || hold END
$$;

-- The last step about each subject that was still there when its day was dropped: with the changes since then, usage
-- at any instant that is kept.
CREATE TABLE baselines (LIKE changes, subject text COLLATE "C" NOT NULL, PRIMARY KEY (tenant, subject));

-- Reserves that wait for room, in the order in which they came.
CREATE TABLE waiters (
    tenant          text COLLATE "C" NOT NULL,
    request_id      text COLLATE "C" NOT NULL,
    seq             bigint NOT NULL, -- of the tenant, when it came
    request         text NOT NULL,
    reply_topic     text NOT NULL,
    reply_partition integer,
    correlation_id  bytea,
    since           timestamptz NOT NULL,
    until           timestamptz NOT NULL,
    lacks           jsonb NOT NULL, -- what there was too little of when it was last judged
    tried_at        timestamptz NOT NULL,
    PRIMARY KEY (tenant, request_id)
);
CREATE INDEX waiters_to_try ON waiters (tried_at);

-- allocated is a cache of what charges and open holds have on a node.
CREATE TABLE nodes (
    node             text COLLATE "C" PRIMARY KEY,
    pool             text COLLATE "C" NOT NULL DEFAULT '',
    labels           jsonb NOT NULL DEFAULT '{}',
    schedulable      boolean NOT NULL DEFAULT true,
    cpu_capacity     bigint, -- null: the node never told, and is no gate
    memory_capacity  bigint,
    cpu_allocated    bigint NOT NULL DEFAULT 0,
    memory_allocated bigint NOT NULL DEFAULT 0,
    report_version   bigint NOT NULL DEFAULT 0, -- 0: named by a request, and never reported
    reported_at      timestamptz
);
CREATE INDEX nodes_of_pool ON nodes (pool);

-- How often each gate failed open, by replica: counted in the deciding transaction, so that no crash loses one.
CREATE TABLE fail_opens (
    instance text NOT NULL,
    gate     text NOT NULL,
    total    bigint NOT NULL,
    last_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (instance, gate)
) WITH (fillfactor = 50);

-- Lock guards in their one order, and only then read the clock, the defaults' version, and what was answered earlier
-- to these requests: one trip for what every batch begins with. Each statement in here sees what was committed before
-- it began, so that nothing it reads is older than the locks. With `idle`, guards that somebody has are passed over.
CREATE FUNCTION lock_tenants(names text[], askers text[], ids text[], back interval, idle boolean)
RETURNS TABLE (tenant text, seq bigint, request_id text, fingerprint bytea, reply text, hold text, now timestamptz,
    defaults_version bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    IF idle THEN
        names := ARRAY(SELECT tenant FROM tenants WHERE tenant = ANY (names) ORDER BY tenant FOR UPDATE SKIP LOCKED);
    ELSE
        PERFORM FROM tenants WHERE tenant = ANY (names) ORDER BY tenant FOR UPDATE;
    END IF;
    now := clock_timestamp();
    RETURN QUERY SELECT NULL, NULL::bigint, NULL, NULL::bytea, NULL, NULL, now, p.defaults_version FROM platform p;
    RETURN QUERY SELECT t.tenant, t.seq, NULL, NULL::bytea, NULL, NULL, NULL::timestamptz, NULL::bigint
        FROM tenants t WHERE t.tenant = ANY (names);
    IF cardinality(ids) > 0 THEN
        -- Keys of partitioned tables are not unique by themselves: they are looked up by days of the window.
        RETURN QUERY SELECT d.tenant, NULL::bigint, d.request_id, d.fingerprint, d.reply, d.hold, NULL::timestamptz,
            NULL::bigint
            FROM unnest(askers, ids) AS x (tenant, request_id)
            CROSS JOIN LATERAL (
                SELECT * FROM decisions d WHERE d.tenant = x.tenant AND d.request_id = x.request_id
                    AND d.day BETWEEN (now - back)::date AND now::date
                ORDER BY d.day DESC LIMIT 1
            ) AS d;
    END IF;
END
$$;

-- Partitions by day: made ahead, dropped whole. It runs as its owner, since services own no tables.
CREATE FUNCTION maintain_partitions(ahead_days integer, keep_days integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
    parent text;
    made integer := 0;
    old text[];
    one text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('plimsoll quota partitions'));
    FOREACH parent IN ARRAY ARRAY['decisions', 'changes'] LOOP
        FOR offset_days IN -1 .. ahead_days LOOP
            IF to_regclass(format('%I', parent || to_char(today + offset_days, '_YYYYMMDD'))) IS NULL THEN
                EXECUTE format(
                    'CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
                    parent || to_char(today + offset_days, '_YYYYMMDD'), parent,
                    today + offset_days, today + offset_days + 1);
                made := made + 1;
            END IF;
        END LOOP;
    END LOOP;
    SELECT array_agg(c.relname::text ORDER BY right(c.relname, 8)) INTO old
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent IN ('decisions'::regclass, 'changes'::regclass)
      AND right(c.relname, 8) < to_char(today - keep_days, 'YYYYMMDD');
    BEGIN
        FOREACH one IN ARRAY coalesce(old, '{}') LOOP
            IF one LIKE 'changes%' THEN
                PERFORM roll_baselines(one);
            END IF;
        END LOOP;
        -- Dropping waits for whoever reads, and whoever writes waits behind it: better the next hour than long.
        PERFORM set_config('lock_timeout', '2s', true);
        FOREACH one IN ARRAY coalesce(old, '{}') LOOP
            EXECUTE format('DROP TABLE %I', one);
        END LOOP;
        PERFORM set_config('lock_timeout', '0', true);
    EXCEPTION WHEN lock_not_available THEN
        RAISE NOTICE 'somebody reads what is to be dropped: %', old;
    END;
    RETURN made;
END
$$;

-- Keep what a day of changes came to, before it is dropped: each subject's last step, where it did not end.
CREATE FUNCTION roll_baselines(day_of_changes text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    EXECUTE format(
        'DELETE FROM baselines b USING %I c
         WHERE b.tenant = c.tenant AND b.subject = history_subject(c.kind, c.deployment, c.hold, c.environment, c.stack)',
        day_of_changes);
    EXECUTE format(
        'INSERT INTO baselines SELECT * FROM (
             SELECT DISTINCT ON (c.tenant, history_subject(c.kind, c.deployment, c.hold, c.environment, c.stack))
                 c.*, history_subject(c.kind, c.deployment, c.hold, c.environment, c.stack) AS subject
             FROM %I c
             ORDER BY c.tenant, history_subject(c.kind, c.deployment, c.hold, c.environment, c.stack), c.seq DESC
         ) AS last WHERE NOT gone AND kind <> %L',
        day_of_changes, 'hold_closed');
END
$$;
SELECT maintain_partitions(14, 35);

-- The service reads and writes rows; it owns nothing, so it cannot change the schema.
DO $$
BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO quota_enforcer', current_schema());
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %I TO quota_enforcer', current_schema());
    EXECUTE format('REVOKE INSERT, UPDATE, DELETE ON %I.migrations FROM quota_enforcer', current_schema());
    EXECUTE format('GRANT USAGE ON ALL SEQUENCES IN SCHEMA %I TO quota_enforcer', current_schema());
    EXECUTE format('REVOKE ALL ON FUNCTION %I.maintain_partitions(integer, integer) FROM PUBLIC', current_schema());
    EXECUTE format('REVOKE ALL ON FUNCTION %I.roll_baselines(text) FROM PUBLIC', current_schema());
    EXECUTE format('REVOKE INSERT, UPDATE, DELETE ON %I.baselines FROM quota_enforcer', current_schema());
    EXECUTE format('GRANT EXECUTE ON FUNCTION %I.maintain_partitions(integer, integer) TO quota_enforcer', current_schema());
END
$$;
