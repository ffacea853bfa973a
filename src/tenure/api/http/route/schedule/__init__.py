"""Schedules over HTTP: their operations, bodies, parameters and views."""
