-- What the doctor reads. Nothing here writes.

-- name: doctor_days
SELECT p.parent, d.ahead, ((clock_timestamp() AT TIME ZONE 'UTC')::date + d.ahead) AS day,
    to_regclass(p.parent || to_char((clock_timestamp() AT TIME ZONE 'UTC')::date + d.ahead, '_YYYYMMDD')) IS NOT NULL AS is_there
FROM generate_series(0, $1::int) AS d (ahead) CROSS JOIN (VALUES ('decisions'), ('changes')) AS p (parent)
ORDER BY d.ahead, p.parent

-- name: doctor_durability
SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') ORDER BY name

-- name: doctor_sessions
-- A role sees the sessions of its own; each process of the service names itself in them.
SELECT DISTINCT application_name FROM pg_stat_activity
WHERE usename = current_user AND datname = current_database() AND application_name LIKE 'quota-enforcer-%'
ORDER BY application_name

-- name: doctor_owners
SELECT t.topic, n.partition, o.owner, EXISTS (
    SELECT FROM pg_stat_activity a WHERE a.usename = current_user AND a.datname = current_database()
    AND split_part(a.application_name, ' ', 1) = o.owner) AS is_live
FROM unnest($1::text[], $2::int[]) AS t (topic, partitions)
CROSS JOIN LATERAL generate_series(0, t.partitions - 1) AS n (partition)
LEFT JOIN consumer_offsets o ON o.consumer = 'quota-enforcer' AND o.topic = t.topic AND o.partition = n.partition
ORDER BY t.topic, n.partition

-- name: doctor_offsets
SELECT topic, partition, next_offset FROM consumer_offsets WHERE consumer = 'quota-enforcer'

-- name: doctor_outbox
SELECT coalesce(sum(messages), 0), coalesce(extract(epoch FROM clock_timestamp() - min(created_at)), 0)::float8 FROM outbox

-- name: doctor_dead_letters
SELECT topic, count(*) AS waiting, extract(epoch FROM clock_timestamp() - min(created_at))::float8 AS oldest
FROM dead_letters WHERE replayed_at IS NULL GROUP BY topic ORDER BY waiting DESC, topic

-- name: doctor_holds
SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(expires_at)), 0)::float8,
    coalesce(array_agg(DISTINCT tenant), '{}')
FROM holds WHERE state = 'open' AND expires_at <= clock_timestamp()

-- name: doctor_limits
SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(expires_at)), 0)::float8,
    coalesce(array_agg(DISTINCT tenant), '{}')
FROM (SELECT tenant, expires_at FROM limits UNION ALL SELECT 'defaults', expires_at FROM defaults) AS l
WHERE expires_at <= clock_timestamp()

-- name: doctor_waiters
SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(until)), 0)::float8,
    coalesce(array_agg(DISTINCT tenant), '{}')
FROM waiters WHERE until <= clock_timestamp()

-- name: doctor_gates
SELECT g.gate, count(*) AS times, extract(epoch FROM clock_timestamp() - max(d.decided_at))::float8 AS ago
FROM decisions d CROSS JOIN LATERAL unnest(d.fail_open) AS g (gate)
WHERE d.day >= ((clock_timestamp() - $1::interval) AT TIME ZONE 'UTC')::date
  AND d.decided_at > clock_timestamp() - $1::interval AND d.fail_open <> '{}'
GROUP BY g.gate ORDER BY g.gate

-- name: doctor_entitlements
SELECT count(*), count(*) FILTER (WHERE e.tenant IS NULL),
    coalesce((array_agg(t.tenant ORDER BY t.tenant) FILTER (WHERE e.tenant IS NULL))[1:4], '{}')
FROM tenants t LEFT JOIN entitlements e USING (tenant)

-- name: doctor_over_limits
SELECT tenant, environment, stack, gauge, extract(epoch FROM clock_timestamp() - since)::float8 AS lasts,
    count(*) OVER () AS total
FROM over_limits WHERE threshold = 'over' ORDER BY since, tenant, environment, stack, gauge LIMIT 3

-- name: doctor_tenants
SELECT tenant, seq FROM tenants WHERE tenant > $1 ORDER BY tenant LIMIT $2

-- name: doctor_count_tenants
SELECT count(*) FROM tenants

-- name: doctor_usage
SELECT tenant, environment, stack, used, held FROM usage WHERE tenant = ANY ($1::text[])

-- name: doctor_nodes
SELECT node, cpu_allocated, memory_allocated FROM nodes

-- name: doctor_placed_tenants
SELECT tenant FROM charges WHERE nodes IS NOT NULL AND NOT gone
UNION
SELECT tenant FROM holds WHERE nodes IS NOT NULL AND state = 'open'
ORDER BY tenant
