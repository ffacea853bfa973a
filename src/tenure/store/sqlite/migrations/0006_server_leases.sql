-- kind: expand
-- breaking: no

-- How many workers a server heard when it was seen last: once it is gone, it tells how many of them
-- have come back elsewhere.
ALTER TABLE servers ADD COLUMN lease_count INTEGER NOT NULL DEFAULT 0;
