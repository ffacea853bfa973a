"""Envelopes on their way to endpoints: what they say, how they are signed, and one POST for each.

``envelope`` writes the JSON, ``http_post`` sends it with h11 over a checked connection, and
``endpoint_poster`` puts both together. Nothing of a reply is kept but its status.
"""
