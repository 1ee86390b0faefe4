"""The reference of all commands in `docs/cli.md`, made of their help: `python -m weft.cli.reference` writes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from weft.cli.commands import app
from weft.cli.parsing import HELP, CommandGroup, options_of

TITLE: Final = "## All commands and options"
PAGE: Final = Path(__file__).parents[3] / "docs" / "cli.md"


def reference() -> str:
    """Return the reference as Markdown: for each command its help, and a table of its arguments and options."""
    parts = [TITLE, "", f"Each command and each group of commands also takes `{', '.join(HELP)}`.", ""]
    for path in commands(app):
        command = app.find(path).command
        arguments, options = options_of(command)
        parts += [f"### weft {' '.join(path)}", "", command.summary, ""]
        if command.verb is not None and command.verb.aliases:
            parts += [f"Also: {', '.join(f'`weft {alias}`' for alias in command.verb.aliases)}.", ""]
        if arguments or options:
            parts += ["| argument or option | meaning |", "|---|---|"]
            parts += [f"| `{name}` | {text} |" for name, text in (*arguments, *options)]
            parts.append("")
    return "\n".join(parts)


def commands(group: CommandGroup, *path: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of all commands of a group and of the groups in it, sorted."""
    for name in sorted(group):
        target = group.find([name]).command.target
        if isinstance(target, CommandGroup):
            yield from commands(target, *path, name)
        else:
            yield (*path, name)


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8").partition(TITLE)[0]
    PAGE.write_text(text + reference(), encoding="utf-8")
