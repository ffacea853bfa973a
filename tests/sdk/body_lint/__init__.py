"""Tests of the lint of workflows."""
