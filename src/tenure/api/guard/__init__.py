"""The checks between the network and the engine, for both edges.

Who calls and what they may do (``access``, ``scope``, ``key_grant``, ``client_address``), how much
is accepted (``admission``, ``rate_limit``, ``fair_share``, ``descriptor_watch``), what may be
reached and how (``exposure``, ``tls``, ``certificate``), and what may be logged
(``redaction``, ``refusal_log``). Nothing here touches the store.
"""
