"""What stands between the network and the engine, for both edges alike.

Who calls and what they may do (``access``, ``scope``, ``key_grant``, ``client_address``), how much
is let in (``admission``, ``rate_limit``, ``fair_share``, ``descriptor_watch``), what may be
reached and how (``exposure``, ``tls``, ``certificate``), and what may be logged of it
(``redaction``, ``refusal_log``). Nothing here touches the store.
"""
