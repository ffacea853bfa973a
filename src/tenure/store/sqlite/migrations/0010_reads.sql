-- kind: expand
-- breaking: no

-- Tasks that neither wait in a line nor are held by a worker: delayed, paused, waiting. With the
-- indexes of the two other kinds it has every live task of a queue. What is enqueued, handed out
-- and finished at once never enters it.
CREATE INDEX tasks_resting ON tasks (namespace, queue, type, state)
    WHERE line = 0 AND worker_id IS NULL;

-- Who looks for failed tasks need not go through all that succeeded.
CREATE INDEX history_unsuccessful ON history (namespace, id) WHERE state <> 'succeeded';
