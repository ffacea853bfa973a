"""The gRPC edge: one servicer per service of ``proto/tenure/v1``.

``boundary`` stands around every call: it turns a typed error into its status with an
``ErrorDetail``, ends what takes too long, and counts. Servicers translate and nothing else.
``table`` lists them, with what each method needs.
"""
