"""How work finds whoever may be given it.

``offer`` is how a consumer stands here, ``poll`` one that waits; ``plan`` says what a batch claims
for them, ``position`` where in the lines it starts to look, ``dispatch`` brings it to them after
the commit, ``worker_notifier`` tells them everything else, ``worker_activity`` remembers when they
could be given work. Memory here is only what can be had again from the store.
"""
