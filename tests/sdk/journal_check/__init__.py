"""Tests of the check of journals."""
