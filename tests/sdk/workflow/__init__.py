"""Tests of the workflow runtime."""
