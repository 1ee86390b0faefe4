"""Paths that a step may read: those that programs, lists, configurations and texts in quotes behind a command name."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from weft.frontends.pipelines import shell_programs as programs
from weft.frontends.pipelines.config_texts import SUFFIXES as CONFIGS
from weft.frontends.pipelines.config_texts import config_paths
from weft.frontends.pipelines.script_texts import text_of
from weft.frontends.pipelines.shell_text import awk_paths, gap_pattern
from weft.model.patterns import late_pattern

if TYPE_CHECKING:
    from weft.frontends.pipelines.code.path_texts import PathText
    from weft.frontends.pipelines.shell_text import ShellCommand, ShellWord
    from weft.frontends.pipelines.step_files import StepFiles
    from weft.frontends.pipelines.written_files import WrittenFiles

_AROUND: Final = late_pattern(
    r"""["']?(?P<before>[\w./+@%-]*)["']?(?:\$\w+|\$\{\w+\}|\{\})["']?(?P<after>[\w./+@%-]*)["']?"""
)
"""A word with one variable, or with the placeholder of `xargs`."""


class MentionedPaths:
    """Gathers the texts that may name paths while the commands of a step are read; `beside` looks into them."""

    def __init__(self, files: StepFiles) -> None:
        self._files = files
        self.lists: set[str] = set()
        """Files whose lines or words may be names of files."""
        self.programs: list[str] = []
        """Texts of Python in the command itself."""
        self.code: list[tuple[PathText, str]] = []
        """Paths that the code of a step's kind names, each with the folder of the code."""
        self.texts: list[str] = []
        """Paths in texts for other programs."""
        self._around: dict[tuple[str, str], None] = {("", ""): None}
        """What stands before and after a variable, or a placeholder of `xargs`, in a word."""
        self._quoted: list[PathText] = []
        """Paths in quotes inside of words and of texts for other programs."""
        self._fits: list[str] = []
        """Files whose names fit words with unknown variables."""

    def note_gap(self, word: ShellWord) -> None:
        """Note what stands around a variable in a word, into which a name from a list may be put."""
        if gap := _AROUND.fullmatch(word.written):
            self._around[gap["before"], gap["after"]] = None

    def note_fitting(self, words: Iterable[ShellWord], folder: str) -> None:
        """Note the files that words with unknown variables may name: those that are there and fit."""
        for word in words:
            option, equals, value = word.written.partition("=")
            if word.text is None and not (equals and programs.WRITES_INTO.fullmatch(option)):
                self._fits += self._files.fitting(gap_pattern(value if equals else word.written), folder)

    def note_quotes(self, command: ShellCommand, *, is_python: bool) -> None:
        """Note the paths in quotes inside of the words of a command and of its text; a program of Python is parsed."""
        from weft.frontends.pipelines.code.path_texts import quoted_paths

        parsed = [after for before, after in pairwise(command.words) if before.text == "-c"] if is_python else []
        words = [word for word in command.words[1:] if word not in parsed]
        for text in (*[word.text or word.written.strip('"') for word in words], "" if is_python else command.text):
            self._quoted += quoted_paths(text)

    def beside(self, counted: Collection[str], started_in: Collection[str], writes: WrittenFiles) -> dict[str, None]:
        """Return the absolute paths that the texts, and the scripts and lists among the counted files, name beside
        these; `started_in` are the folders in which commands run.
        """
        from weft.frontends.pipelines.code.path_texts import QUOTING, PathText, paths_named

        told = QUOTING | {".awk", ".py"}
        named = [(path, "") for text in self.programs for path in paths_named(text)]
        named += [*self.code, *((path, "") for path in self._quoted)]
        fits = () if any(map(os.path.isfile, self.lists)) else self._fits  # a list tells exactly
        named += [(PathText(text), "") for text in (*self.texts, *fits)]
        texts = [one for one in counted if one in self.lists or _suffix(one) in told or one.endswith(CONFIGS)]
        named += self._named_in(texts)
        left_out = [*counted, *writes.replaced]
        found = self._existing(named, started_in, left_out, writes)
        configs = [one for one in found if one.endswith(CONFIGS)]
        return {**found, **self._existing(self._named_in(configs), started_in, left_out, writes)}

    def _existing(
        self,
        named: Iterable[tuple[PathText, str]],
        started_in: Collection[str],
        left_out: Collection[str],
        writes: WrittenFiles,
    ) -> dict[str, None]:
        """Return the paths that are there and not left out, each named with the folder of the text that names it."""
        found: dict[str, None] = {}
        for path, own in dict.fromkeys(named):
            for folder in [own] if path.own and own else started_in:
                place = self._files.place(folder, path.text)
                if self._is_mentioned(place, path.is_part, writes) and not any(
                    f"{place}/".startswith(f"{one}/") for one in left_out
                ):
                    found[place] = None
        return found

    def _named_in(self, files: Iterable[str]) -> list[tuple[PathText, str]]:
        """Return the paths that the texts of files name, each with the folder of its file."""
        return [(path, os.path.dirname(file)) for file in files for path in self._names_in(file, text_of(file))]

    def _names_in(self, script: str, text: str) -> Iterable[PathText]:
        """Return the paths that a file names: a list, a configuration, or a script."""
        from weft.frontends.pipelines.code.path_texts import QUOTING, PathText, paths_named, quoted_paths

        if script in self.lists:
            return map(PathText, self._listed(text))
        if script.endswith(CONFIGS):
            return [PathText(path, own) for path in config_paths(text) for own in (False, True)]
        if _suffix(script) in QUOTING:
            return quoted_paths(text, _suffix(script))
        return map(PathText, awk_paths(text)) if script.endswith(".awk") else paths_named(text)

    def _listed(self, text: str) -> list[str]:
        """Return the names that the commands may make of a list's lines and words."""
        words = dict.fromkeys((*text.split(), *text.splitlines()))
        return [f"{before}{word}{after}" for word in words for before, after in self._around]

    def _is_mentioned(self, path: str, is_part: bool, writes: WrittenFiles) -> bool:
        """Whether a path in a program is a file of the project, or a folder of it that the command only reads."""
        files = self._files
        if os.path.isdir(path):
            inside = path.startswith(files.roots) and f"{path}/" not in files.roots and files.is_input(path)
            return inside and not any(made.startswith(f"{path}/") for made in writes.written)
        return not is_part and (files.is_of_project(path) or files.is_data_outside(path))


def _suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower()
