-- kind: expand
-- breaking: no

-- The lease of a worker that was taken offline, as it was then: until it would have been over, the
-- worker may run its exclusive attempts. The row goes when all that the worker held is looked at.
CREATE TABLE ended_leases (
    worker_id uuid PRIMARY KEY,
    lease_until_ms bigint NOT NULL,
    lease_ms integer NOT NULL CHECK (lease_ms > 0)
);
