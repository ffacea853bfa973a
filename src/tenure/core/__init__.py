"""The pure centre: what the states are, and what follows from what.

Purpose: states, events, rules and `decide()`; input checks; retry, cron, lease and paging
arithmetic. The server and the SDK use the same functions, so they cannot disagree.

Rule: no I/O, clock, randomness, logging or `async`. Time (`now_ms`), ids and random numbers are
parameters. The same arguments give the same result, in any process and any number of times.

State: none is owned here. Entities are frozen values; the store owns the rows they come from.
The only memory is of names already found good, which changes the cost of a check, never its result.

Failure: a refusal of an event is a `Rejection`, a value. Bad input from outside raises a
`TenureError` before anything was decided. A failed `assert` is a mistake of ours.
"""
