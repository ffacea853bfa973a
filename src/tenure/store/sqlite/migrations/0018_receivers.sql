-- kind: expand
-- breaking: no

-- Nothing to do here: only PostgreSQL needs functions that count what workers hold.
