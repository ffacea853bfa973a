"""The tests of Tenure; the folders mirror those of ``src/tenure``."""
