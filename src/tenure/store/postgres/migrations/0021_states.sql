-- kind: expand
-- breaking: no

-- Tasks that run, wait or are paused, newest first by state: a list of them goes past no pending
-- one. What is enqueued, handed out and finished within half a second never enters it.
CREATE INDEX tasks_states ON tasks (namespace, state, id)
    WHERE state <> 'pending' AND state <> 'dispatched';
