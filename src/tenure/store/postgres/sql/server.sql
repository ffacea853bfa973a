-- name: delete_servers(before_ms)
DELETE FROM servers WHERE touched_at_ms < :before_ms RETURNING CAST(id AS text);

-- name: read_position()
-- By the present log: the last checkpoint may be from before a promotion.
SELECT
    (SELECT CAST(system_identifier AS text) FROM pg_control_system()) AS system_id,
    CAST(
        CAST('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) AS bit(32)) AS bigint
    ) AS timeline;

-- name: read_timeline(system_id)
SELECT coalesce(max(timeline), 0) FROM servers WHERE system_id = :system_id;

-- name: touch_server(id, now_ms, system_id, timeline)
INSERT INTO servers (id, started_at_ms, touched_at_ms, system_id, timeline, lease_count)
VALUES (
    CAST(:id AS uuid), :now_ms, :now_ms, :system_id, :timeline,
    (SELECT count(*) FROM leases WHERE server_id = CAST(:id AS uuid))
)
ON CONFLICT (id) DO UPDATE SET
    touched_at_ms = EXCLUDED.touched_at_ms,
    system_id = EXCLUDED.system_id,
    timeline = EXCLUDED.timeline,
    lease_count = EXCLUDED.lease_count
RETURNING CAST(id AS text);
