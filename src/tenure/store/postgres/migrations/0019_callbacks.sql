-- kind: expand
-- breaking: no

-- What the process behind an endpoint said about an attempt that was not the last of its task.
ALTER TABLE attempts ADD COLUMN callback bytea;
ALTER TABLE attempts ADD COLUMN callback_checksum bigint;
