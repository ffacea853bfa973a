"""How commands explain themselves: sections of the help, and names that were meant."""

from __future__ import annotations

from collections.abc import Sequence

import click


class ConnectionOption(click.Option):
    """An option about the way to a server; many commands have the same ones."""


class HelpCommand(click.Command):
    """A command whose help lists the options of the connection apart, after its own."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write both sections."""
        options = [each for each in self.get_params(ctx) if isinstance(each, click.Option)]
        own = [each for each in options if not isinstance(each, ConnectionOption)]
        shared = [each for each in options if isinstance(each, ConnectionOption)]
        for title, some in (("Options", own), ("Connection options", shared)):
            _write(title, some, ctx, formatter)


def _write(
    title: str, options: Sequence[click.Option], ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    records = [record for each in options if (record := each.get_help_record(ctx)) is not None]
    if records:
        with formatter.section(title):
            formatter.write_dl(records)


class CommandGroup(click.Group):
    """A group that names the command that was probably meant."""

    command_class = HelpCommand

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is named first."""
        name = args[0]
        is_known = name.startswith("-") or self.get_command(ctx, name) is not None
        if not is_known and not ctx.resilient_parsing:
            raise click.UsageError(f"No such command {name!r}.{self._guess(ctx, name)}", ctx)
        return super().resolve_command(ctx, args)

    def _guess(self, ctx: click.Context, name: str) -> str:
        from difflib import get_close_matches

        found = get_close_matches(name.lower(), self.list_commands(ctx))
        return f" Did you mean {' or '.join(found)}?" if found else ""
