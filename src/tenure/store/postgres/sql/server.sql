-- name: delete_servers(before_ms)
DELETE FROM servers WHERE touched_at_ms < :before_ms RETURNING CAST(id AS text);

-- name: touch_server(id, now_ms)
INSERT INTO servers (id, started_at_ms, touched_at_ms, lease_count)
VALUES (
    CAST(:id AS uuid), :now_ms, :now_ms,
    (SELECT count(*) FROM leases WHERE server_id = CAST(:id AS uuid))
)
ON CONFLICT (id) DO UPDATE
SET touched_at_ms = EXCLUDED.touched_at_ms, lease_count = EXCLUDED.lease_count
RETURNING CAST(id AS text);
