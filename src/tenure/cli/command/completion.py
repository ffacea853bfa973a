"""``tenure completion``: what makes the tab key work."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

_INSTALL: Final = {
    "bash": """\
# Completion of tenure for bash 4.4 or newer. For this shell:
#   source <(tenure completion bash)
# For every shell from now on:
#   tenure completion bash > ~/.local/share/bash-completion/completions/tenure
""",
    "zsh": """\
#compdef tenure
# Completion of tenure for zsh. For this shell:
#   source <(tenure completion zsh)
# For every shell from now on, into a folder of your $fpath, before compinit runs:
#   tenure completion zsh > ~/.zfunc/_tenure
""",
    "fish": """\
# Completion of tenure for fish. For this shell:
#   tenure completion fish | source
# For every shell from now on:
#   tenure completion fish > ~/.config/fish/completions/tenure.fish
""",
}


@click.command(short_help="Print a shell completion script.")
@click.argument("shell", type=click.Choice(list(_INSTALL)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell. Its first lines say how to install it.

    \b
    Examples:
      source <(tenure completion bash)
      tenure completion zsh > ~/.zfunc/_tenure
      tenure completion fish > ~/.config/fish/completions/tenure.fish
    """  # noqa: D301 (click's mark for a block that is not wrapped)
    found = get_completion_class(shell)
    assert found is not None
    script = found(ctx.find_root().command, {}, "tenure", "_TENURE_COMPLETE")
    text = (script.source_template % script.source_vars()).removeprefix("#compdef tenure")
    click.echo(_INSTALL[shell] + text.strip("\n"))
