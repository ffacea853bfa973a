"""Tests of what is built and installed."""
