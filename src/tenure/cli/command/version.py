"""``tenure version``."""

from __future__ import annotations

import platform

import click

import tenure


@click.command(short_help="Print the version.")
def version() -> None:
    """Print the version of Tenure and of the Python that runs it."""
    click.echo(f"tenure {tenure.__version__} (Python {platform.python_version()})")
