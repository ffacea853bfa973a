"""How fast Tenure is, beside the limit that the database sets on the same machine.

``python -m benchmarks`` runs the parts, prints what was measured and what was promised, and writes
``latest.json``. The part ``floor`` is the limit: the life of a task as bare, batched SQL without
any code of Tenure. Each other part measures Tenure and divides by that limit or by its own
undisturbed case, because rates on a shared machine say little and ratios, measured alternately,
say much.

Rules: a part is one module with ``async def run(context)``, listed in ``__main__.PARTS``. It
returns numbers by name; the name ends in the unit (``_rate`` and ``_per_s`` per second, ``_us``,
``_bytes``, ``_buffers``), and ``name.floor`` is what ``name`` is compared with. A part owns the
databases and files that it asks the context for; all are removed after it. A part that fails ends
the run, and ``latest.json`` stays as it was.
"""
