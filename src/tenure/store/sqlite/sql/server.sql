-- name: delete_servers(before_ms)
DELETE FROM servers WHERE touched_at_ms < :before_ms RETURNING id;

-- name: touch_server(id, now_ms)
INSERT INTO servers (id, started_at_ms, touched_at_ms, lease_count)
VALUES (:id, :now_ms, :now_ms, (SELECT count(*) FROM leases WHERE server_id = :id))
ON CONFLICT (id) DO UPDATE
SET touched_at_ms = excluded.touched_at_ms, lease_count = excluded.lease_count
RETURNING id;
