"""The services, each with the ``SPEC`` that says how it is made and what its methods need.

``rpc/table.py`` joins them. A new service is one line there.
"""
