"""Random kill -9 of everything, for a given time, and a checker of what must hold all the same.

``scene`` is the long test. ``plan`` draws the kills from a seed, ``parts`` keeps the servers, the
workers and the database and starts again what was killed, ``producer`` is a program that enqueues,
and ``activity`` is what the workers run. Each of them writes down what it saw, by one clock.
``history`` reads that, ``checker`` says which promises it breaks, ``recovery`` how long things
took. These three are pure, and their tests show that each broken promise is found.
"""
