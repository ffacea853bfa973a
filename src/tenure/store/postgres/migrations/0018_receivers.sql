-- kind: expand
-- breaking: no

-- How many attempts each of some workers holds, by their ids, up to so many each. As held_now, which
-- servers of the version before call for one worker after the other. The settings are those of the
-- lanes, which a pooler does not keep: where one worker holds most of the tasks, the table would be
-- read for each of the others.
CREATE FUNCTION held_counts(
    in_namespaces text[], in_queues text[], in_worker_ids uuid[], held_max integer[]
) RETURNS jsonb LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    RETURN (
        SELECT jsonb_object_agg(d.worker_id, c.held)
        FROM unnest(in_namespaces, in_queues, in_worker_ids, held_max)
            AS d (namespace, queue, worker_id, held_max)
        CROSS JOIN LATERAL (
            SELECT count(*) AS held
            FROM (
                SELECT 1
                FROM tasks AS t
                WHERE t.worker_id IS NOT NULL
                  AND t.namespace = d.namespace
                  AND t.queue = d.queue
                  AND t.worker_id = d.worker_id
                LIMIT d.held_max
            ) AS held
        ) AS c
    );
END
$$;

-- Whether a worker may get one task more: it is as it is remembered, nobody else has locked it, its
-- last heartbeat is not too old, its queue is neither paused nor limited, and, if slots are given,
-- it has one free. It stays locked. A function, because only it sees what was handed out before the
-- lock, and because a statement that gives nothing to a worker then prepares nothing for it.
CREATE FUNCTION can_receive(
    in_worker_id uuid, in_version integer, in_lease_ms bigint, late_since_ms bigint, slots integer
) RETURNS boolean LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    receiver record;
BEGIN
    SELECT w.namespace, w.queue INTO receiver
    FROM workers AS w
    JOIN leases AS l ON l.worker_id = w.id
    LEFT JOIN queues AS q ON q.namespace = w.namespace AND q.name = w.queue
    WHERE w.id = in_worker_id
      AND w.version = in_version
      AND l.lease_ms = in_lease_ms
      AND l.beat_at_ms > late_since_ms
      AND COALESCE(NOT q.is_paused AND q.concurrency_max = 0, true)
    FOR UPDATE OF w SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    RETURN slots = 0 OR slots > (
        SELECT count(*)
        FROM (
            SELECT 1
            FROM tasks AS t
            WHERE t.worker_id IS NOT NULL
              AND t.namespace = receiver.namespace
              AND t.queue = receiver.queue
              AND t.worker_id = in_worker_id
            LIMIT slots
        ) AS held
    );
END
$$;
