"""The public test kit: simulated time, manual clocks and an in-process server.

Rule: nothing in here waits for real time or asks the machine for time, order or randomness, so
a test that fails once fails again. No other layer imports this package.

State: a loop or a clock belongs to the test that made it. None is shared or global.

Failure: what a simulation cannot do (threads, sockets, subprocesses, signals) is refused with an
error where it is called. A program that can never finish is an error too, not a hang.
"""
