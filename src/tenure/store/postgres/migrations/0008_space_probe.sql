-- kind: expand
-- breaking: no

-- Where a server tries whether there is space again after the storage was full. Always empty.
CREATE TABLE space_probe (
    body bytea NOT NULL
);
ALTER TABLE space_probe ALTER COLUMN body SET STORAGE EXTERNAL;
