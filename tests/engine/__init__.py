"""Tests of the engine on both stores."""
