-- kind: expand
-- breaking: no

-- Where a server tries whether there is space again after the storage was full. Always empty.
CREATE TABLE space_probe (
    body BLOB NOT NULL
) STRICT;
