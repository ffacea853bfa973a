"""The gRPC edge: one servicer per service of ``proto/tenure/v1``.

``boundary`` wraps every call: it turns a typed error into its status with an ``ErrorDetail``, ends
calls that take too long, and counts. Servicers only translate.
``table`` lists them, with what each method needs.
"""
