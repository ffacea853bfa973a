"""Tests of the public test kit."""
