-- kind: expand
-- breaking: no

-- The highest timeline that a server has seen, and of which database system: a host with a lower one
-- is an old primary. Empty and 0 where there is none: on SQLite, and for servers that do not know it.
ALTER TABLE servers ADD COLUMN system_id text NOT NULL DEFAULT '';
ALTER TABLE servers ADD COLUMN timeline bigint NOT NULL DEFAULT 0;
