"""What only runs do: yield and be woken, park and resume, clean up after a cancel, begin anew.

A run is a task of kind ``workflow``, and the states and attempts of ``core/task`` hold for it.
``record`` says what is stored of it beside that, ``start`` makes one, ``wake_up`` says what wakes
it, ``generation`` how it begins anew, ``cancel`` what a cancel request does, ``child`` what it
makes and hears of, and ``published`` what it shows of itself.
Nothing here does I/O; what these rules append to the journal is part of their decision.
"""
