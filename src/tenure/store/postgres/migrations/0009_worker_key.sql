-- kind: expand
-- breaking: no

-- The API key that a worker belongs to. Workers that were registered without one, or by a server that
-- does not know this column, belong to nobody.
ALTER TABLE workers ADD COLUMN key_id text NOT NULL DEFAULT '';
