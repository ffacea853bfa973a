"""Tenure: durable tasks and workflows, with workers you can trust."""

__version__ = "0.1.0"
