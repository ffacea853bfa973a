-- kind: expand
-- breaking: no

-- Nothing to do here: only PostgreSQL needs types for rows of parameters.
