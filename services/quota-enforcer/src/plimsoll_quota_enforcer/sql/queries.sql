-- name: open_tenants
-- Guards of tenants never seen before, taken in the order in which guards are locked.
INSERT INTO tenants (tenant) SELECT t FROM unnest($1::text[]) AS t ORDER BY t COLLATE "C" ON CONFLICT DO NOTHING

-- name: lock_tenants
SELECT * FROM lock_tenants($1, $2, $3, $4, $5)

-- name: clock
SELECT clock_timestamp()

-- name: load_charges
SELECT * FROM charges WHERE tenant = ANY ($1::text[]) AND NOT gone

-- name: load_open_holds
SELECT * FROM holds WHERE tenant = ANY ($1::text[]) AND state = 'open'

-- name: load_limits
SELECT * FROM limits WHERE tenant = ANY ($1::text[])

-- name: load_entitlements
SELECT * FROM entitlements WHERE tenant = ANY ($1::text[])

-- name: load_over_limits
SELECT * FROM over_limits WHERE tenant = ANY ($1::text[])

-- name: load_measured
SELECT * FROM measured WHERE tenant = ANY ($1::text[]) AND bytes IS NOT NULL

-- name: load_waiters
SELECT * FROM waiters WHERE tenant = ANY ($1::text[]) ORDER BY tenant, seq, request_id

-- name: open_nodes
-- Nodes that are named before they ever reported: what is not there cannot be locked.
INSERT INTO nodes (node) SELECT n FROM unnest($1::text[]) AS n ORDER BY n COLLATE "C" ON CONFLICT DO NOTHING

-- name: lock_nodes
-- After all guards, in one order, by whoever may move what is allocated there.
SELECT * FROM nodes WHERE node = ANY ($1::text[]) OR pool = ANY ($2::text[]) ORDER BY node FOR UPDATE

-- name: load_defaults
SELECT * FROM defaults

-- name: recall_charges
SELECT c.* FROM unnest($1::text[], $2::text[]) AS x (tenant, deployment)
CROSS JOIN LATERAL (
    SELECT * FROM charges c WHERE c.tenant = x.tenant AND c.deployment = x.deployment LIMIT 1
) AS c

-- name: recall_holds
SELECT h.* FROM unnest($1::text[], $2::text[]) AS x (tenant, request_id)
CROSS JOIN LATERAL (
    SELECT * FROM holds h WHERE h.tenant = x.tenant AND h.request_id = x.request_id LIMIT 1
) AS h

-- name: save_tenants
UPDATE tenants t SET seq = x.seq, defaults_version = x.defaults_version
FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS x (tenant, seq, defaults_version)
WHERE t.tenant = x.tenant

-- name: save_charges
INSERT INTO charges (
    tenant, deployment, revision, gone, environment, stack, app, cpu_reserved, cpu_limit, memory_reserved,
    memory_limit, disk, vapps, reservation_milli, limit_milli, nodes, changed_seq, changed_at)
SELECT x.*, $18 FROM unnest(
    $1::text[], $2::text[], $3::bigint[], $4::boolean[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::bigint[],
    $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::int[], $15::int[], $16::jsonb[], $17::bigint[]) AS x
ON CONFLICT (tenant, deployment) DO UPDATE SET
    revision = excluded.revision, gone = excluded.gone, environment = excluded.environment, stack = excluded.stack,
    app = excluded.app, cpu_reserved = excluded.cpu_reserved, cpu_limit = excluded.cpu_limit,
    memory_reserved = excluded.memory_reserved, memory_limit = excluded.memory_limit, disk = excluded.disk,
    vapps = excluded.vapps, reservation_milli = excluded.reservation_milli, limit_milli = excluded.limit_milli,
    nodes = excluded.nodes, changed_seq = excluded.changed_seq, changed_at = excluded.changed_at, omitted_since = NULL

-- name: save_holds
-- Closed ones come first in the arrays: a deployment's next hold may open in the same batch.
INSERT INTO holds (
    tenant, request_id, deployment, environment, stack, app, cpu_reserved, cpu_limit, memory_reserved,
    memory_limit, disk, vapps, reservation_milli, limit_milli, nodes, expires_at, state, settled_revision,
    settled_outcome, replaces, surge, changed_at)
SELECT x.tenant, x.request_id, x.deployment, x.environment, x.stack, x.app, x.cpu_reserved, x.cpu_limit,
    x.memory_reserved, x.memory_limit, x.disk, x.vapps, x.reservation_milli, x.limit_milli, x.nodes, x.expires_at, x.state,
    x.settled_revision, x.settled_outcome, x.replaces::text[], x.surge, $22
FROM unnest(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::bigint[], $9::bigint[],
    $10::bigint[], $11::bigint[], $12::bigint[], $13::int[], $14::int[], $15::jsonb[], $16::timestamptz[], $17::text[],
    $18::bigint[], $19::text[], $20::text[], $21::boolean[])
    AS x (tenant, request_id, deployment, environment, stack, app, cpu_reserved, cpu_limit, memory_reserved, memory_limit,
          disk, vapps, reservation_milli, limit_milli, nodes, expires_at, state, settled_revision, settled_outcome,
          replaces, surge)
ON CONFLICT (tenant, request_id) DO UPDATE SET
    deployment = excluded.deployment, environment = excluded.environment, stack = excluded.stack, app = excluded.app,
    cpu_reserved = excluded.cpu_reserved, cpu_limit = excluded.cpu_limit, memory_reserved = excluded.memory_reserved,
    memory_limit = excluded.memory_limit, disk = excluded.disk, vapps = excluded.vapps,
    reservation_milli = excluded.reservation_milli, limit_milli = excluded.limit_milli, nodes = excluded.nodes,
    expires_at = excluded.expires_at, state = excluded.state, settled_revision = excluded.settled_revision,
    settled_outcome = excluded.settled_outcome, replaces = excluded.replaces, surge = excluded.surge,
    changed_at = excluded.changed_at

-- name: save_usage
INSERT INTO usage (tenant, environment, stack, used, held, changed_at)
SELECT x.tenant, x.environment, x.stack, x.used::bigint[], x.held::bigint[], $6
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) AS x (tenant, environment, stack, used, held)
ON CONFLICT (tenant, environment, stack) DO UPDATE SET
    used = excluded.used, held = excluded.held, changed_at = excluded.changed_at

-- name: save_decisions
INSERT INTO decisions (
    tenant, request_id, verb, fingerprint, request, reply, hold, allowed, code, fail_open, seq, entitlement_version,
    defaults_version, decided_at, day)
SELECT x.tenant, x.request_id, x.verb, x.fingerprint, x.request, x.reply, x.hold, x.allowed, x.code,
    x.fail_open::text[], x.seq, x.entitlement_version, $13, $14, $15
FROM unnest(
    $1::text[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::text[], $7::text[], $8::boolean[], $9::text[],
    $10::text[], $11::bigint[], $12::bigint[])
    AS x (tenant, request_id, verb, fingerprint, request, reply, hold, allowed, code, fail_open, seq, entitlement_version)

-- name: save_changes
INSERT INTO changes (
    tenant, seq, kind, deployment, environment, stack, app, amounts, reservation_milli, limit_milli, hold, hold_state,
    revision, gone, replaces, surge, request_id, at, day)
SELECT x.tenant, x.seq, x.kind, x.deployment, x.environment, x.stack, x.app, x.amounts::bigint[], x.reservation_milli,
    x.limit_milli, x.hold, x.hold_state, x.revision, x.gone, x.replaces::text[], x.surge, x.request_id, $18, $19
FROM unnest(
    $1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::int[],
    $10::int[], $11::text[], $12::text[], $13::bigint[], $14::boolean[], $15::text[], $16::boolean[], $17::text[])
    AS x (tenant, seq, kind, deployment, environment, stack, app, amounts, reservation_milli, limit_milli, hold,
          hold_state, revision, gone, replaces, surge, request_id)

-- name: save_measured
INSERT INTO measured (tenant, environment, stack, bytes, term, scan, measured_at, method, complete)
SELECT * FROM unnest(
    $1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::timestamptz[], $8::text[],
    $9::boolean[])
ON CONFLICT (tenant, environment, stack) DO UPDATE SET
    bytes = excluded.bytes, term = excluded.term, scan = excluded.scan, measured_at = excluded.measured_at,
    method = excluded.method, complete = excluded.complete

-- name: save_waiters
INSERT INTO waiters (
    tenant, request_id, seq, request, reply_topic, reply_partition, correlation_id, since, until, lacks, tried_at)
SELECT x.*, $11 FROM unnest(
    $1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::int[], $7::bytea[], $8::timestamptz[],
    $9::timestamptz[], $10::jsonb[]) AS x
ON CONFLICT (tenant, request_id) DO UPDATE SET
    reply_topic = excluded.reply_topic, reply_partition = excluded.reply_partition,
    correlation_id = excluded.correlation_id, lacks = excluded.lacks, tried_at = excluded.tried_at

-- name: forget_waiters
DELETE FROM waiters w USING unnest($1::text[], $2::text[]) AS x (tenant, request_id)
WHERE w.tenant = x.tenant AND w.request_id = x.request_id

-- name: note_waiters_tried
UPDATE waiters SET tried_at = $2 WHERE tenant = ANY ($1::text[])

-- name: save_nodes
UPDATE nodes n SET
    pool = x.pool, labels = x.labels, schedulable = x.schedulable, cpu_capacity = x.cpu_capacity,
    memory_capacity = x.memory_capacity, cpu_allocated = x.cpu_allocated, memory_allocated = x.memory_allocated,
    report_version = x.report_version,
    reported_at = CASE WHEN x.report_version > n.report_version THEN $10 ELSE n.reported_at END
FROM unnest(
    $1::text[], $2::text[], $3::jsonb[], $4::boolean[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],
    $9::bigint[])
    AS x (node, pool, labels, schedulable, cpu_capacity, memory_capacity, cpu_allocated, memory_allocated, report_version)
WHERE n.node = x.node

-- name: save_over_limits
INSERT INTO over_limits (tenant, environment, stack, gauge, threshold, since)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::smallint[], $5::text[], $6::timestamptz[])
ON CONFLICT (tenant, environment, stack, gauge, threshold) DO UPDATE SET since = excluded.since

-- name: forget_over_limits
DELETE FROM over_limits o
USING unnest($1::text[], $2::text[], $3::text[], $4::smallint[], $5::text[]) AS x (tenant, environment, stack, gauge, threshold)
WHERE o.tenant = x.tenant AND o.environment = x.environment AND o.stack = x.stack AND o.gauge = x.gauge
    AND o.threshold = x.threshold

-- name: save_entitlements
INSERT INTO entitlements (
    tenant, version, fingerprint, plan, limits, deployments, blocked, ended, snapshot, projected_at)
SELECT x.tenant, x.version, x.fingerprint, x.plan, x.limits::jsonb, x.deployments, x.blocked::text[], x.ended,
    x.snapshot, $10
FROM unnest(
    $1::text[], $2::bigint[], $3::bytea[], $4::text[], $5::text[], $6::boolean[], $7::text[], $8::boolean[], $9::text[])
    AS x (tenant, version, fingerprint, plan, limits, deployments, blocked, ended, snapshot)
ON CONFLICT (tenant) DO UPDATE SET
    version = excluded.version, fingerprint = excluded.fingerprint, plan = excluded.plan, limits = excluded.limits,
    deployments = excluded.deployments, blocked = excluded.blocked, ended = excluded.ended,
    snapshot = excluded.snapshot, projected_at = excluded.projected_at
WHERE excluded.version > entitlements.version

-- name: save_fail_opens
INSERT INTO fail_opens (instance, gate, total)
SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[]) AS x (instance, gate, total) ORDER BY gate
ON CONFLICT (instance, gate) DO UPDATE SET total = fail_opens.total + excluded.total, last_at = excluded.last_at

-- name: load_fail_opens
SELECT gate, total FROM fail_opens WHERE instance = $1

-- name: tenants_to_sweep
-- Holds whose time has passed, limits whose time has passed, tenants not yet judged by the present defaults, and
-- those where somebody waits: room on nodes may have come free elsewhere.
SELECT tenant FROM (
    (SELECT DISTINCT tenant FROM holds WHERE state = 'open' AND expires_at <= clock_timestamp() LIMIT $1)
    UNION
    (SELECT DISTINCT tenant FROM limits WHERE expires_at <= clock_timestamp() LIMIT $1)
    UNION
    (SELECT tenant FROM waiters WHERE tried_at <= clock_timestamp() - interval '0.5 seconds'
     GROUP BY tenant ORDER BY min(tried_at) LIMIT $1)
    UNION
    (SELECT t.tenant FROM tenants t, platform p WHERE t.defaults_version < p.defaults_version LIMIT $1)
) AS due ORDER BY tenant LIMIT $1

-- name: forget_expired_limits
DELETE FROM limits WHERE tenant = ANY ($1::text[]) AND expires_at <= $2 RETURNING *

-- name: forget_expired_defaults
DELETE FROM defaults WHERE expires_at <= $1 RETURNING *

-- name: lock_platform
SELECT defaults_version FROM platform FOR UPDATE

-- name: raise_defaults_version
UPDATE platform SET defaults_version = defaults_version + 1 RETURNING defaults_version

-- name: last_limit_versions
SELECT h.tenant, h.environment, h.stack, h.dimension, max(h.version) AS version
FROM (SELECT DISTINCT * FROM unnest($1::text[], $2::text[], $3::text[])) AS x (tenant, environment, stack)
JOIN limit_history h USING (tenant, environment, stack) GROUP BY h.tenant, h.environment, h.stack, h.dimension

-- name: save_limit
INSERT INTO limits (tenant, environment, stack, dimension, value, mode, version, expires_at, set_by, reason, set_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT (tenant, environment, stack, dimension) DO UPDATE SET
    value = excluded.value, mode = excluded.mode, version = excluded.version, expires_at = excluded.expires_at,
    set_by = excluded.set_by, reason = excluded.reason, set_at = excluded.set_at

-- name: forget_limit
DELETE FROM limits WHERE tenant = $1 AND environment = $2 AND stack = $3 AND dimension = $4

-- name: save_default
INSERT INTO defaults (dimension, value, mode, version, expires_at, set_by, reason, set_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (dimension) DO UPDATE SET
    value = excluded.value, mode = excluded.mode, version = excluded.version, expires_at = excluded.expires_at,
    set_by = excluded.set_by, reason = excluded.reason, set_at = excluded.set_at

-- name: forget_default
DELETE FROM defaults WHERE dimension = $1

-- name: tenants_above_default
-- Who uses more than a default would allow on any of its gauges, and has no limit that holds before it.
SELECT u.tenant FROM usage u
WHERE u.environment = '' AND u.stack = '' AND u.tenant <> ALL ($5::text[])
    AND EXISTS (SELECT FROM unnest($1::int[], $2::bigint[]) AS x (gauge, top) WHERE u.used[gauge] + u.held[gauge] > top)
    AND NOT EXISTS (
        SELECT FROM limits l WHERE l.tenant = u.tenant AND l.environment = '' AND l.stack = '' AND l.dimension = $3
            AND (l.expires_at IS NULL OR l.expires_at > $4))
    AND NOT EXISTS (SELECT FROM entitlements e WHERE e.tenant = u.tenant AND e.limits ? $3)
ORDER BY u.tenant LIMIT $6

-- name: save_limit_history
INSERT INTO limit_history (
    tenant, environment, stack, dimension, version, is_set, value, mode, expires_at, changed_by, reason, changed_at, seq)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)

-- name: list_limits
-- Overrides from the one after a key, among some tenants or (null) all, of those that pass every filter given.
SELECT * FROM limits
WHERE (tenant, environment, stack, dimension) > ($1, $2, $3, $4)
    AND ($5::text[] IS NULL OR tenant = ANY ($5)) AND ($6::text IS NULL OR dimension = $6)
    AND ($7::text IS NULL OR mode = $7) AND ($8::timestamptz IS NULL OR expires_at < $8)
ORDER BY tenant, environment, stack, dimension LIMIT $9

-- name: list_limit_history
-- Changes before an id, newest first; the environment and the stack are null where any will do.
SELECT h.*, b.is_set AS was_is_set, b.value AS was_value, b.mode AS was_mode, b.expires_at AS was_until,
    b.reason AS was_reason
FROM limit_history h
LEFT JOIN limit_history b ON b.tenant = h.tenant AND b.environment = h.environment AND b.stack = h.stack
    AND b.dimension = h.dimension AND b.version = h.version - 1
WHERE h.id < $1 AND ($2::text[] IS NULL OR h.tenant = ANY ($2)) AND ($3::text IS NULL OR h.environment = $3)
    AND ($4::text IS NULL OR h.stack = $4) AND ($5::text IS NULL OR h.dimension = $5)
ORDER BY h.id DESC LIMIT $6

-- name: save_limit_request
INSERT INTO limit_requests (tenant, environment, stack, dimension, value, state, asked_by, asked_reason, asked_at)
VALUES ($1, $2, $3, $4, $5, 'asked', $6, $7, clock_timestamp()) RETURNING *

-- name: count_limit_requests
SELECT count(*) FROM limit_requests WHERE tenant = $1 AND state = 'asked'

-- name: read_limit_request
SELECT * FROM limit_requests WHERE id = $1

-- name: decide_limit_request
-- No row where it was decided before: whoever comes second waits for the first, and then finds that.
UPDATE limit_requests SET state = $2, decided_by = $3, decided_reason = $4, decided_at = clock_timestamp(),
    granted = $5, expires_at = $6, limit_version = $7
WHERE id = $1 AND state = 'asked' RETURNING *

-- name: list_limit_requests
SELECT * FROM limit_requests
WHERE id < $1 AND ($2::text[] IS NULL OR tenant = ANY ($2)) AND ($3::text IS NULL OR state = $3)
ORDER BY id DESC LIMIT $4

-- name: list_tenants
SELECT tenant FROM tenants WHERE tenant > $1 AND ($3::text[] IS NULL OR tenant = ANY ($3)) ORDER BY tenant LIMIT $2

-- name: list_scopes
SELECT environment, stack FROM (
    SELECT environment, stack FROM usage WHERE tenant = $1
    UNION
    SELECT environment, stack FROM limits WHERE tenant = $1
) AS s WHERE $2::text IS NULL OR (environment, stack) > ($2, $3::text) ORDER BY environment, stack LIMIT $4

-- name: read_usage
SELECT used, held, changed_at FROM usage WHERE tenant = $1 AND environment = $2 AND stack = $3

-- name: read_tenant
SELECT seq FROM tenants WHERE tenant = $1

-- name: count_open_holds
SELECT count(*) FROM holds WHERE tenant = $1 AND state = 'open' AND ($2 = '' OR environment = $2) AND ($3 = '' OR stack = $3)

-- name: count_deployments
SELECT count(*) FROM charges WHERE tenant = $1 AND NOT gone AND ($2 = '' OR environment = $2) AND ($3 = '' OR stack = $3)

-- name: forget_closed_holds
-- In bites, so that no transaction is long.
DELETE FROM holds WHERE ctid IN (
    SELECT ctid FROM holds WHERE state <> 'open' AND changed_at < clock_timestamp() - make_interval(days => $1) LIMIT $2)

-- name: history_kept_from
-- The first day of changes that was not dropped, in UTC.
SELECT min(to_date(right(c.relname::text, 8), 'YYYYMMDD'))::timestamp AT TIME ZONE 'UTC' AS kept_from
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'changes'::regclass

-- name: known_since
SELECT known_since FROM tenants WHERE tenant = $1

-- name: history_until
-- The last step about each charge, hold and measurement up to an instant, where it had not ended by then.
SELECT * FROM (
    SELECT DISTINCT ON (subject) * FROM (
        SELECT * FROM baselines WHERE tenant = $1
        UNION ALL
        SELECT c.*, history_subject(kind, deployment, hold, environment, stack) FROM changes c
        WHERE tenant = $1 AND day <= $3 AND at <= $2
    ) AS steps ORDER BY subject, seq DESC
) AS last WHERE (NOT gone OR $4) AND kind <> 'hold_closed' ORDER BY seq -- with $4 those that are gone too

-- name: page_decisions
-- At most $8 decisions are looked at for one page, however few of them match: a page has the same cost anywhere.
SELECT tenant, request_id, verb, allowed, code, fail_open, decided_at, environment, stack, deployment,
    coalesce((reply::json ->> 'would_deny')::boolean, false) AS would_deny, reply::json ->> 'message' AS message,
    ($9::text IS NULL OR verb = $9) AND ($10::text IS NULL OR code = $10) AND ($11::boolean IS NULL OR allowed = $11)
    AND ($12::text IS NULL OR deployment = $12) AND $13 IN ('', environment) AND $14 IN ('', stack) AS matches
FROM (
    SELECT l.*, coalesce(l.request::json ->> 'environment', h.environment, '') AS environment,
        coalesce(l.request::json ->> 'stack', h.stack, '') AS stack,
        coalesce(l.request::json ->> 'deployment', h.deployment) AS deployment
    FROM (
        SELECT tenant, request_id, verb, allowed, code, fail_open, decided_at, request, reply FROM decisions
        WHERE {whose} AND day BETWEEN $2 AND $3 AND {beyond} AND decided_at >= $4 AND decided_at < $5
        ORDER BY {order} LIMIT $8
    ) AS l
    LEFT JOIN holds h ON h.tenant = l.tenant AND h.request_id = l.request::json ->> 'hold'
) AS looked_at ORDER BY {order}

-- name: show_decision
SELECT d.*, h.state AS hold_state, h.deployment AS hold_deployment, h.expires_at AS hold_expires_at,
    h.environment AS hold_environment, h.stack AS hold_stack,
    e.version AS present_entitlement_version, p.defaults_version AS present_defaults_version
FROM decisions d CROSS JOIN platform p
LEFT JOIN entitlements e ON e.tenant = d.tenant
LEFT JOIN holds h ON h.tenant = d.tenant AND h.request_id = d.hold
WHERE d.tenant = $1 AND d.request_id = $2 ORDER BY d.day DESC LIMIT 1

-- name: gate_totals
SELECT gate, sum(total)::bigint AS total, max(last_at) AS last_at FROM fail_opens GROUP BY gate

-- name: tenants_without_entitlement
SELECT t.tenant, c.deployments, d.last_at
FROM tenants t
LEFT JOIN entitlements e ON e.tenant = t.tenant
CROSS JOIN LATERAL (SELECT count(*) AS deployments FROM charges c WHERE c.tenant = t.tenant AND NOT c.gone) AS c
CROSS JOIN LATERAL (SELECT max(decided_at) AS last_at FROM decisions d WHERE d.tenant = t.tenant) AS d
WHERE e.tenant IS NULL AND t.tenant > $1 AND (c.deployments > 0 OR d.last_at IS NOT NULL)
ORDER BY t.tenant LIMIT $2

-- name: last_fail_open
SELECT max(decided_at) FROM decisions WHERE tenant = $1 AND fail_open <> '{}'

-- name: take_key
INSERT INTO idempotency_keys (principal, key, fingerprint) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING taken_at

-- name: read_key
SELECT fingerprint, reply, taken_at FROM idempotency_keys WHERE principal = $1 AND key = $2

-- name: keep_reply
UPDATE idempotency_keys SET reply = $3 WHERE principal = $1 AND key = $2

-- name: forget_keys
DELETE FROM idempotency_keys WHERE taken_at < clock_timestamp() - make_interval(hours => $1)

-- name: limits_tag
SELECT count(*) FROM limit_history WHERE tenant = $1 AND environment = $2 AND stack = $3

-- name: hold_expiries
SELECT request_id, expires_at FROM holds WHERE tenant = $1 AND (state = 'open' OR changed_at > $2)

-- name: tombstones_older_than
SELECT * FROM charges WHERE tenant = $1 AND gone AND changed_at <= $2

-- name: closed_holds_named_later
SELECT DISTINCT ON (c.hold) c.*, h.expires_at, h.settled_revision, h.settled_outcome
FROM decisions d
JOIN changes c ON c.tenant = d.tenant AND c.hold = d.request::json ->> 'hold' AND c.day <= $3 AND c.at <= $2
JOIN holds h ON h.tenant = c.tenant AND h.request_id = c.hold
WHERE d.tenant = $1 AND d.day >= $3 AND d.decided_at > $2 AND d.verb IN ('commit', 'release')
ORDER BY c.hold, c.seq DESC

-- name: limits_of_then
SELECT DISTINCT ON (environment, stack, dimension) * FROM limit_history WHERE tenant = $1 AND changed_at <= $2
ORDER BY environment, stack, dimension, version DESC

-- name: limits_since
SELECT * FROM limit_history WHERE tenant = ANY ($1::text[]) AND changed_at > $2 ORDER BY changed_at, id

-- name: replay_decisions
SELECT request, allowed, code, seq, entitlement_version, decided_at AS at FROM decisions
WHERE tenant = $1 AND day >= $3 AND decided_at > $2 ORDER BY seq, NOT allowed, decided_at, request_id LIMIT $4

-- name: replay_facts
SELECT * FROM changes WHERE tenant = $1 AND day >= $3 AND at > $2 AND request_id = '' AND kind IN ('settled', 'measured')
ORDER BY seq

-- name: ages_of_charges_and_holds
SELECT 'charge ' || deployment AS subject, changed_at FROM charges WHERE tenant = $1 AND NOT gone
UNION ALL SELECT 'hold ' || request_id, changed_at FROM holds WHERE tenant = $1 AND state = 'open'
