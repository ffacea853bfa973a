-- name: delete_servers(before_ms)
DELETE FROM servers WHERE touched_at_ms < :before_ms RETURNING id;

-- name: read_position()
-- A file has no timeline.
SELECT '' AS system_id, 0 AS timeline;

-- name: read_timeline(system_id)
SELECT coalesce(max(timeline), 0) FROM servers WHERE system_id = :system_id;

-- name: touch_server(id, now_ms, system_id, timeline)
INSERT INTO servers (id, started_at_ms, touched_at_ms, system_id, timeline, lease_count)
VALUES (
    :id, :now_ms, :now_ms, :system_id, :timeline,
    (SELECT count(*) FROM leases WHERE server_id = :id)
)
ON CONFLICT (id) DO UPDATE SET
    touched_at_ms = excluded.touched_at_ms,
    system_id = excluded.system_id,
    timeline = excluded.timeline,
    lease_count = excluded.lease_count
RETURNING id;
