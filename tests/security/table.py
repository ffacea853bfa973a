"""The rows of "Bad input and attacks" that are about who may do what, and their tests.

It stands beside ``tests/api/bad_input/table.py``, which has the rows about requests.
"""

from __future__ import annotations

from typing import Final

_RPC: Final = "tests/security/test_rpc_matrix.py"
_HTTP: Final = "tests/security/test_http_matrix.py"
_TENANT: Final = "tests/security/test_cross_tenant.py"
_EDGE: Final = "tests/security/test_peer_edge.py"
_CREDENTIAL: Final = "tests/security/test_peer_credential.py"
_CODE: Final = "tests/security/test_peer_code.py"
_LINE: Final = "tests/security/test_log_line.py"
_SECRET: Final = "tests/security/test_secret.py"
_WORKER: Final = "tests/security/test_worker_identity.py"
_BUDGET: Final = "tests/engine/batch/test_payload_budget.py"
_LOG: Final = "tests/api/test_log.py"
_TLS: Final = "tests/api/tls/test_edge.py"
_STATE: Final = "tests/api/bad_input/test_state.py"
_STORE: Final = "tests/store/test_faults.py"

ROWS: Final[dict[str, tuple[str, ...]]] = {
    "Unknown worker, task: the same body for what exists elsewhere": (
        f"{_RPC}::test_an_id_of_another_namespace_is_as_one_that_does_not_exist",
        f"{_HTTP}::test_an_id_of_another_namespace_is_as_one_that_does_not_exist",
    ),
    "page_token from another tenant": (
        f"{_RPC}::test_an_id_of_another_namespace_is_as_one_that_does_not_exist",
        f"{_TENANT}::test_a_list_of_the_server_shows_a_tenant_its_own_on_all_pages",
    ),
    "Pickle anywhere": (
        f"{_CODE}::test_weakness_pickle_as_the_input_of_a_task",
        f"{_CODE}::test_weakness_pickle_as_the_output_of_a_task",
        f"{_CODE}::test_weakness_pickle_in_the_details_of_an_error",
        f"{_CODE}::test_weakness_pickle_in_the_details_of_a_heartbeat",
        f"{_CODE}::test_weakness_pickle_sent_over_http",
    ),
    "Exception objects rebuilt by name from stored data": (
        f"{_CODE}::test_weakness_exceptions_rebuilt_by_their_name",
    ),
    "Function reference module:attr from a payload": (
        f"{_CODE}::test_weakness_functions_that_a_task_type_refers_to",
        f"{_CODE}::test_weakness_functions_that_a_server_names_to_a_worker",
    ),
    # Task tokens are no JWT: these are the rows of JWT as they apply to them.
    "JWT alg=none, RS→HS confusion, unknown crit, kid injection, JWK in header": (
        f"{_STATE}::test_tokens_of_another_algorithm_or_key_or_purpose",
    ),
    "Token of task A on task B; attempt 1 on attempt 2; after terminal; on admin RPC": (
        f"{_CREDENTIAL}::test_weakness_the_token_of_one_task_completes_another",
        f"{_CREDENTIAL}::test_weakness_a_token_that_is_good_after_the_end_of_its_task",
        f"{_CREDENTIAL}::test_weakness_the_token_of_a_task_as_an_api_key",
        f"{_CREDENTIAL}::test_weakness_an_api_key_as_the_token_of_a_task",
    ),
    "Timing of signature/secret compare": (
        f"{_CREDENTIAL}::test_weakness_secrets_compared_byte_by_byte",
    ),
    "Cross-tenant: outer ns A + inner ns B": (
        f"{_RPC}::test_exactly_those_who_may_are_let_in",
        f"{_RPC}::test_a_foreign_namespace_is_told_like_one_that_does_not_exist",
        f"{_RPC}::test_an_id_of_another_namespace_is_as_one_that_does_not_exist",
        f"{_HTTP}::test_exactly_those_who_may_are_let_in",
        f"{_HTTP}::test_a_foreign_namespace_is_told_like_one_that_does_not_exist",
        f"{_HTTP}::test_an_id_of_another_namespace_is_as_one_that_does_not_exist",
        f"{_EDGE}::test_weakness_inner_namespace_differs_header_and_query",
        f"{_EDGE}::test_weakness_inner_namespace_differs_hello_and_later_frames",
        f"{_EDGE}::test_weakness_inner_namespace_differs_on_a_stream_of_results",
        f"{_EDGE}::test_weakness_inner_namespace_differs_in_a_nested_key",
        f"{_TENANT}::test_a_diagnosis_says_nothing_of_other_namespaces_or_of_the_server",
        f"{_TENANT}::test_an_explanation_names_nobody_of_another_namespace",
        f"{_TENANT}::test_a_listener_to_events_hears_its_own_namespace_from_the_very_first_on",
    ),
    "Rate/quota exceeded, per tenant": (
        f"{_TENANT}::test_a_flood_of_heartbeats_for_the_worker_of_another_costs_it_nothing",
        f"{_TENANT}::test_lists_of_the_server_are_counted_for_each_key",
    ),
    "Auth exemption by suffix/prefix": (
        f"{_EDGE}::test_weakness_exemptions_matched_by_suffix_or_prefix",
        f"{_EDGE}::test_weakness_exemptions_of_any_method",
        f"{_EDGE}::test_weakness_exemptions_by_a_header_that_overrides_the_path_or_method",
        f"{_EDGE}::test_weakness_exemptions_of_methods_that_end_in_check",
    ),
    "WebSocket/SSE/gRPC stream without auth, or after token expiry": (
        f"{_EDGE}::test_weakness_streams_without_authentication_over_grpc",
        f"{_EDGE}::test_weakness_streams_without_authentication_over_http",
        f"{_EDGE}::test_weakness_streams_without_authentication_by_websocket",
        f"{_EDGE}::test_weakness_streams_that_outlive_their_key",
        "tests/api/access/test_rpc.py::test_a_stream_ends_when_its_key_expires",
    ),
    "Dashboard default exposure: loopback unless there is a key": (
        "tests/api/access/test_exposure.py::test_without_an_admin_key_only_this_machine_is_served",
    ),
    "CSRF on cancel/retry/drain; CORS": (
        f"{_EDGE}::test_weakness_permissive_cors",
        f"{_EDGE}::test_weakness_requests_that_a_form_of_another_site_can_send",
    ),
    "mTLS: wrong CA, expired, none": (
        f"{_TLS}::test_with_an_authority_for_clients_only_their_certificates_are_let_in",
        f"{_TLS}::test_an_authority_for_clients_can_be_added_and_removed_while_the_server_runs",
        f"{_TLS}::test_an_old_session_is_no_way_around_a_new_authority",
    ),
    "Secrets: env, DSN, Authorization, payload in logs, metrics, errors": (
        f"{_SECRET}::test_secrets_that_go_in_everywhere_come_out_nowhere",
        f"{_LOG}::test_a_secret_that_goes_everywhere_is_in_no_log",
        f"{_CREDENTIAL}::test_weakness_a_key_in_the_query_string",
    ),
    "Stack traces / SQL in error bodies": (
        f"{_LINE}::test_weakness_error_bodies_with_traces_statements_or_paths",
    ),
    "Log injection": (
        f"{_LINE}::test_weakness_log_injection_by_names_and_words",
        f"{_LOG}::test_a_value_cannot_begin_a_line_of_its_own_or_speak_to_the_terminal",
    ),
    "Worker impersonation": (
        f"{_WORKER}::test_weakness_a_worker_that_says_it_is_another_one",
        f"{_WORKER}::test_weakness_a_session_that_takes_the_place_of_another_worker",
        f"{_WORKER}::test_weakness_workers_told_apart_by_host_and_process",
        f"{_WORKER}::test_the_id_of_a_heartbeat_is_checked_before_it_is_remembered",
    ),
    "Worker key acting for a worker that another key registered": (
        f"{_RPC}::test_a_worker_is_spoken_for_by_its_own_key_and_by_administrators",
        f"{_WORKER}::test_the_instance_key_of_a_worker_is_shown_to_nobody",
        "tests/engine/worker/test_worker_key.py::test_a_key_speaks_only_for_its_own_workers",
    ),
    "Inputs of hundreds of MiB waiting for hand-out": (
        f"{_BUDGET}::test_a_session_gets_no_more_than_it_has_room_for_until_it_has_read",
    ),
    "SQLite file mode": (
        f"{_STORE}::test_the_files_of_a_store_are_open_to_their_owner_alone",
        f"{_STORE}::test_a_file_that_others_could_read_is_closed_to_them",
    ),
}
