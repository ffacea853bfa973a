"""The pure core: the states, and what follows from each event.

Purpose: states, events, rules and `decide()`; input checks; retry, cron, lease and paging
arithmetic. The server and the SDK use the same functions, so they cannot disagree.

Rule: no I/O, clock, randomness, logging or `async`. Time (`now_ms`), ids and random numbers are
parameters. The same arguments give the same result, in any process and any number of times.

State: the core owns none. Entities are frozen values; the store owns the rows they come from.
Caches hold valid names, rules of schedules and time zones. They change the cost of a call, never
its result. `tenure.zone_data`, below the core, reads the zones of an installed package.

Failure: a refused event gives a `Rejection`, a value. Invalid input from outside raises a
`TenureError` before anything is decided. A failed `assert` is a bug in Tenure.
"""
