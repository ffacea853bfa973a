"""The rows of "Bad input and attacks", and the tests that stand for them.

``LATER`` are rows about parts that this server does not have yet, with the reason. Those about who
may do what are in ``tests/security/table.py``.
"""

from __future__ import annotations

from typing import Final

_REQUEST: Final = "tests/api/bad_input/test_request.py"
_STATE: Final = "tests/api/bad_input/test_state.py"
_CODE: Final = "tests/api/bad_input/test_code.py"
_RATE: Final = "tests/api/guard/test_rate_limit.py"
_HTTP: Final = "tests/api/http/test_bad_input.py"
_EDGE: Final = "tests/api/http/test_edge.py"
_TASKS: Final = "tests/api/rpc/test_task_service.py"
_WORKERS: Final = "tests/api/rpc/test_worker_service.py"
_ENGINE: Final = "tests/engine/test_bad_input.py"
_LOG: Final = "tests/api/test_log.py"

ROWS: Final[dict[str, tuple[str, ...]]] = {
    "Body > 4 MiB, gRPC message > limit": (
        f"{_REQUEST}::test_a_body_or_a_message_over_four_mebibytes",
        f"{_HTTP}::test_a_body_over_the_limit_is_refused_by_its_length_or_while_it_is_read",
        f"{_HTTP}::test_a_large_input_is_stored_and_a_larger_one_refused",
    ),
    # Compressed bodies are refused as such, before anything is unpacked: 415 and UNIMPLEMENTED.
    "gzip/zstd bomb; slow-loris; 10⁴ header bytes": (
        f"{_REQUEST}::test_a_bomb_that_is_compressed_is_not_unpacked",
        f"{_REQUEST}::test_headers_of_ten_thousand_bytes_and_more",
        f"{_REQUEST}::test_a_client_that_sends_its_head_and_then_nothing",
        f"{_EDGE}::test_a_body_that_comes_too_slowly_is_given_up",
        f"{_EDGE}::test_a_head_that_comes_too_slowly_is_refused",
        f"{_EDGE}::test_a_head_that_is_too_large_is_refused",
    ),
    "JSON depth 10⁵; 5,000-digit integer; NaN; duplicate keys; BOM; invalid UTF-8": (
        f"{_REQUEST}::test_json_that_some_reader_would_read_otherwise",
        f"{_REQUEST}::test_json_with_a_byte_order_mark",
        f"{_HTTP}::test_a_bad_field_is_named_and_nothing_is_stored",
        f"{_HTTP}::test_a_bad_body_is_refused",
    ),
    "NUL, lone surrogate, RTL/zero-width in ids, labels": (
        f"{_REQUEST}::test_invisible_characters_in_names_and_labels",
        f"{_REQUEST}::test_a_lone_surrogate_in_a_name",
        f"{_ENGINE}::test_malformed_input_names_its_field_and_changes_nothing",
    ),
    "int ≥ 2⁶³, negative or zero lease/timeout/page_size/attempt, 10-year timeout": (
        f"{_REQUEST}::test_a_timeout_that_is_negative_or_longer_than_ten_years",
        f"{_REQUEST}::test_integers_beyond_64_bits_and_zero_timeouts",
        f"{_REQUEST}::test_page_sizes_that_are_negative_and_a_clamp_for_those_that_are_large",
        f"{_REQUEST}::test_attempts_that_are_zero_or_negative",
        f"{_REQUEST}::test_a_lease_that_is_negative_and_a_clamp_for_one_that_is_long",
    ),
    "Unknown enum, missing field, wrong content-type, unknown field": (
        f"{_REQUEST}::test_unknown_enums_and_missing_fields",
        f"{_REQUEST}::test_a_wrong_content_type_and_an_unknown_field",
        f"{_REQUEST}::test_an_unknown_proto_field_is_ignored",
        f"{_HTTP}::test_another_content_type_or_encoding_is_refused",
    ),
    "Malformed UUID/ULID, path traversal in id, ..%2f": (
        f"{_REQUEST}::test_malformed_ids_over_grpc",
        f"{_REQUEST}::test_malformed_ids_and_path_traversal_over_http",
        f"{_HTTP}::test_a_path_is_matched_exactly",
    ),
    "Unknown worker, task, schedule": (
        f"{_STATE}::test_what_is_unknown_is_answered_as_what_exists_elsewhere",
        f"{_ENGINE}::test_what_is_unknown_has_its_own_error_and_changes_nothing",
    ),
    "Stale attempt / different result for a finished task": (
        f"{_STATE}::test_a_stale_attempt_and_a_different_result_of_a_finished_task",
    ),
    "Expired/zombie": (f"{_STATE}::test_a_report_of_an_attempt_that_timed_out",),
    "Poll while draining / unregistered / with no types": (
        f"{_STATE}::test_a_poll_while_draining_or_unregistered_or_without_types",
        f"{_WORKERS}::test_a_draining_worker_gets_nothing_and_its_open_polls_return",
    ),
    "Same idempotency key, other payload": (
        f"{_STATE}::test_one_idempotency_key_with_two_payloads_names_both_hashes",
    ),
    "Labels: 10⁴ entries, 1 MB value, key __proto__": (
        f"{_REQUEST}::test_ten_thousand_labels_and_a_label_of_a_megabyte",
    ),
    "page_token forged, from another tenant, from another query": (
        f"{_REQUEST}::test_page_tokens_that_are_forged_or_of_another_query_or_namespace",
        "tests/core/test_cursor.py::test_a_cursor_of_another_query_or_key_is_refused",
    ),
    "Regex/filter ReDoS, SQL in filter, ORDER BY injection": (
        f"{_REQUEST}::test_filters_are_a_closed_grammar",
        f"{_REQUEST}::test_filters_over_grpc_and_of_workers_are_a_closed_grammar",
        f"{_HTTP}::test_a_bad_query_is_refused",
    ),
    "Rate/quota exceeded, 10⁶ registrations, endless long-polls": (
        f"{_RATE}::test_the_rate_of_enqueues_counts_tasks_and_is_one_namespace_s_own",
        f"{_RATE}::test_http_has_the_same_rates_with_retry_after",
        f"{_RATE}::test_sessions_and_polls_of_a_namespace_are_bounded",
        f"{_RATE}::test_waiting_requests_of_a_namespace_are_bounded",
        f"{_WORKERS}::test_registrations_have_a_limit_that_never_slows_heartbeats",
    ),
    "Storage full / DB down": (f"{_STATE}::test_a_store_that_is_full_or_away",),
    "Pickle anywhere": (
        f"{_CODE}::test_no_module_imports_pickle_or_its_relatives",
        f"{_CODE}::test_no_module_runs_text",
    ),
    "Exception objects rebuilt by name from stored data": (
        f"{_CODE}::test_modules_are_imported_by_name_only_where_nobody_else_chooses_the_name",
        "tests/sdk/test_failure.py::test_a_caller_reads_type_message_category_causes_and_trace",
    ),
    "Function reference module:attr from a payload": (
        f"{_CODE}::test_the_server_imports_nothing_by_name",
        "tests/sdk/execution/test_async.py::test_a_task_of_an_unknown_type_is_released",
        "tests/sdk/execution/test_process.py::test_the_activity_is_found_by_its_registered_name",
    ),
    # Task tokens are no JWT: one algorithm, one key that the server made, an expiry in each.
    "JWT alg=none, RS→HS confusion, unknown crit, kid injection, JWK in header": (
        f"{_STATE}::test_tokens_of_another_algorithm_or_key_or_purpose",
        "tests/core/access/test_task_token.py::test_a_token_with_a_changed_byte_is_refused",
    ),
    "JWT without exp/aud/iat/jti; exp year 9999; key < 32 B": (
        "tests/core/access/test_task_token.py::test_signed_claims_of_an_unknown_shape_are_refused",
        f"{_TASKS}::test_a_forged_or_expired_token_is_refused",
    ),
    "Token of task A on task B; attempt 1 on attempt 2; after terminal": (
        f"{_STATE}::test_a_token_says_its_own_task_and_attempt_and_is_over_with_it",
    ),
    "Token used after the attempt was given away": (
        f"{_STATE}::test_a_token_says_its_own_task_and_attempt_and_is_over_with_it",
        f"{_STATE}::test_a_report_of_an_attempt_that_timed_out",
    ),
    "Timing of signature/secret compare": (f"{_CODE}::test_secrets_are_compared_in_constant_time",),
    "Secrets in logs, error replies": (
        f"{_LOG}::test_a_secret_that_goes_everywhere_is_in_no_log",
        f"{_EDGE}::test_a_request_is_logged_without_what_it_carried",
        f"{_HTTP}::test_no_refusal_repeats_what_was_sent",
    ),
    "Stack traces / SQL in error bodies": (
        f"{_STATE}::test_a_mistake_of_ours_shows_neither_trace_nor_statement",
        f"{_EDGE}::test_a_mistake_of_ours_is_told_by_its_id_alone",
    ),
    "Log injection": (
        f"{_LOG}::test_a_value_cannot_begin_a_line_of_its_own_or_speak_to_the_terminal",
    ),
    "Worker impersonation": (
        f"{_STATE}::test_a_worker_that_names_the_task_or_the_session_of_another",
        f"{_STATE}::test_workers_of_one_host_and_pid_live_side_by_side",
        f"{_WORKERS}::test_a_worker_of_another_namespace_is_not_there",
    ),
    "Malicious worker": (
        f"{_STATE}::test_a_worker_gets_no_more_than_its_slots_whatever_it_asks_for",
        f"{_STATE}::test_progress_that_is_too_large_or_no_number",
        f"{_REQUEST}::test_workers_that_claim_to_be_more_than_is_allowed",
        f"{_RATE}::test_a_flood_of_beats_is_refused_and_costs_nobody_a_lease",
    ),
    # A namespace has a quota of schedules, and one of them fires at most 20 times per second.
    "Bad cron, 1-second cron on quota, max_catchup 10⁹": (
        "tests/api/http/test_schedule.py::test_bad_content_is_refused_by_its_field",
        "tests/api/http/test_schedule.py::test_a_backfill_of_too_much_is_refused",
        "tests/api/rpc/test_schedule_service.py::test_bad_content_is_refused_by_its_field",
    ),
    "SQLite file mode": (
        "tests/store/test_faults.py::test_the_files_of_a_store_are_open_to_their_owner_alone",
        "tests/store/test_faults.py::test_a_file_that_others_could_read_is_closed_to_them",
    ),
}

LATER: Final[dict[str, str]] = {
    "Key rotation, JWKS": "the server has one key of its own and asks nobody for others",
    "Task token cost": "a benchmark, not a refusal",
    "Internal client with admin role fed user input": "there is no such client",
    "OAuth e-mail allow-list": "there is no OAuth",
    "Dashboard default exposure": "there is no dashboard yet; the rule of the server: tests/api",
    "CSRF": "there are no cookies; that there is no CORS is in tests/security",
    "XSS, clickjacking, cookie flags": "there is no dashboard yet",
    "SSRF": "the server calls nobody yet",
    "callback_base_url = attacker": "there are no callbacks yet",
    "Push request forged to a worker's HTTP port": "nothing is pushed over HTTP yet",
    "mTLS: role and tenant in the SAN": "a certificate only opens the door; the key says who",
    "Supply chain": "with the release",
}
