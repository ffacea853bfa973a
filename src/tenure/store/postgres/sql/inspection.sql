-- name: check_integrity()
-- PostgreSQL looks after its own pages; what can be wrong is that nobody may write.
SELECT CASE WHEN pg_is_in_recovery() THEN 'the server is a read-only replica' ELSE 'ok' END
    AS result;

-- name: read_size()
SELECT pg_database_size(current_database()) AS size;
