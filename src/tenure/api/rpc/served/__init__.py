"""Calls from this server to served workers.

``served_address`` checks where a worker wants to be called, ``call_view`` converts calls and
answers, ``worker_caller`` has one connection for each worker that this server drives. An address is
checked when a worker registers and whenever a connection is made; the checked address is the one
connected to. The environment's proxies are not used.
"""
