"""The task machine: what a task is, what can happen to it, and what follows.

``record`` says what is stored, ``event`` what can happen, ``rule`` in which states, ``decide`` what
follows. ``refusal`` refuses, ``confirmation`` handles an attempt that goes on, ``attempt_end`` and
``attempt_failure`` end an attempt, ``due`` handles a timer of ``deadline``; ``effect`` is what
happens outside. The rest are separate rules: ``attempt``, ``retry``, ``crash_guard``,
``exclusive``, ``damage``, and ``enqueue`` with its ``enqueue_window``. No other code changes the
state of a task.
"""
