"""Tenure: durable tasks and workflows, with workers you can trust."""
