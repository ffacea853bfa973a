"""The task machine: what a task is, what can happen to it, and what follows.

``record`` says what is stored, ``event`` what can happen, ``rule`` in which states, ``decide`` what
follows; ``effect`` and ``refusal`` are its answers, ``deadline`` its timers. The rest are rules of
their own that ``decide`` goes by: ``attempt``, ``retry``, ``crash_guard``, ``exclusive``,
``damage``, and ``enqueue`` with its ``enqueue_window``. Nobody else changes the state of a task.
"""
