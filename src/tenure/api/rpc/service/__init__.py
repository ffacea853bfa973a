"""The services of ``proto/tenure/v1``: translate in, call one engine function, translate out."""
