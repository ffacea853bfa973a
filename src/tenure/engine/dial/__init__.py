"""Connections from a server to addresses that somebody else has chosen.

A name is looked up once, each of its addresses is checked, and the connection goes to a checked
address: whoever owns the name cannot change the address in between. The rule itself is in
``core.address``. There are no redirects and no proxies here; the environment is not read.
"""
