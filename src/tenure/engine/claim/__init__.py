"""How tasks reach the workers that wait for them.

``offer`` is a worker that waits for work, ``poll`` one kind of it; ``plan`` says what a batch
claims for them, ``position`` where in the lines it starts to read, ``dispatch`` delivers tasks
after the commit, ``worker_notifier`` sends workers everything else, ``worker_activity`` knows when
they last showed that they are not deaf. Memory here is only what can be read again from the store.
"""
