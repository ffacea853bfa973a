-- name: check_integrity()
SELECT integrity_check AS result FROM pragma_integrity_check;

-- name: read_size()
SELECT page_count * page_size AS size FROM pragma_page_count, pragma_page_size;
