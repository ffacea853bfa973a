"""Finds in the source of workflows what comes out differently when they are run again.

``lint`` reads the files of workflows, ``body`` looks through one function and ``sets`` for sets in
it, ``names`` knows what a name means after the imports of its file, ``rule`` says what is refused.

Rule: nothing of a workflow is executed; only the syntax tree is looked at.

State: none.

Failure: a file that cannot be read is left out. What is found is advice: a comment
``# tenure: ok`` on its line silences it.
"""
