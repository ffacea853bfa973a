"""Long tests of what is promised under loss: each a script with a size, small in ``make test``."""
