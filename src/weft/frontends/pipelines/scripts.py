"""The scripts that a command runs, found in its text: inputs of a cached step, whether or not `fs_scope` names them.

The text is read as a shell would read it, without running anything. Each word that names a file, or a folder of the
project, counts, and so do the files that a pattern such as `data/*.csv` finds, and the shell scripts and Python modules
behind a word. A word with a variable is not known before the step runs; a command that runs code behind such a word, or
from a pipe, is told. So is one with a folder that cannot count: the whole project, a folder that the command writes
into, one with too many files.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise, product
from math import prod
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from weft.frontends.pipelines import shell_programs as programs
from weft.frontends.pipelines.config_texts import sourced
from weft.frontends.pipelines.kinds import load_kind
from weft.frontends.pipelines.mentioned_paths import MentionedPaths
from weft.frontends.pipelines.named_files import ITEM_TEMPLATE, NamedFiles, is_large
from weft.frontends.pipelines.named_files import below as _below
from weft.frontends.pipelines.script_texts import arguments_of, beginning, placed, text_of
from weft.frontends.pipelines.shell_functions import Argument, with_arguments, without_functions
from weft.frontends.pipelines.shell_text import (
    ASSIGNED,
    MOST_TURNS,
    ShellCommand,
    ShellWord,
    awk_paths,
    commands,
    printf_pattern,
    substituted,
    without_wrappers,
)
from weft.frontends.pipelines.shell_variables import VARIABLE, assigned, values_in
from weft.frontends.pipelines.step_files import StepFiles
from weft.frontends.pipelines.step_variables import declared, variables
from weft.frontends.pipelines.written_files import WrittenFiles
from weft.model.errors import ProgramError
from weft.model.patterns import late_pattern

if TYPE_CHECKING:
    from weft.frontends.pipelines.resolved import ResolvedStep

_ATTACHED: Final = late_pattern(r"-[A-Za-z](.+)|[\w.@/:+~-]+?=(.+)", re.DOTALL)
"""The value of an option in the same word: `-fFILE`, `--file=FILE`, `if=FILE`, `+data.path=FILE`."""
_OPTION: Final = late_pattern(r"[-+][\w.-]+|\w+(?:\.\w+)+")
"""A name of an option before a `=`, other than of a variable."""
_PATHS: Final = late_pattern(r"\$\{(?:PYTHON)?PATH[^}]*\}|\$(?:PYTHON)?PATH\b")
_WORK_DIR: Final = late_pattern(r"\$(?:PWD\b|\{PWD\}|\(\s*pwd\s*\))|`\s*pwd\s*`")
_TEMPLATE: Final = "{{"
_LISTED: Final = late_pattern(r"\bfor\s+([A-Za-z_]\w*)\s+in((?:[ \t]+[\w./:=,+@%*?-]+)+)\s*[;\n]")
"""A loop of a shell over words that stand there, its variable and the words."""
_IN_FOLDER: Final = late_pattern(r"""(?:[\w-]+=)?["']?\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})["']?/""")
"""The beginning of a word that names a file in a folder that is a variable."""
_OF_A_SHELL: Final = late_pattern(r"(?:BASH|PF_|WEFT_)\w*|HOME|HOSTNAME|OLDPWD|PWD|RANDOM|SHELL|TMPDIR|UID|USER")
"""Variables that a shell or the run sets."""
_SEARCHED: Final = late_pattern(r"""\bsys\.path\s*(?:\.\s*(?:insert|append|extend)\s*\(|\+?=)([^\n]*)""")
"""A line of Python that adds folders to those in which modules are found."""
_GLOB: Final = late_pattern(r"[\w./=:,+@%~^!*?\[\]-]*[*?\[][\w./=:,+@%~^!*?\[\]-]*")
_SYSTEM: Final = ("/bin/", "/sbin/", "/usr/", "/lib", "/dev/", "/proc/", "/sys/")
_MOST_FILES: Final = 500


class Scripts(Struct):
    """The findings of a scan: absolute paths of files, and commands whose script is not known.

    `mentioned` are paths that programs name in their texts: the step may read them. `named` are the
    words that name files by the item of a loop, or ones that are not there yet, None without any. `changed` are files
    that the commands read and then write, `appended` those that they add to; neither has artifacts. `written`
    are all that they write, as far as their text tells.
    """

    files: dict[str, None] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    mentioned: dict[str, None] = field(default_factory=dict)
    named: NamedFiles | None = None
    changed: Sequence[str] = ()
    appended: Sequence[str] = ()
    written: frozenset[str] = frozenset()


def scripts_of(step: ResolvedStep, folder: str = "", *, mentions: bool = False) -> Scripts:
    """Return the scripts of a step's commands; nothing is run, and of the disk only scripts are read.

    `folder` is that of the pipeline's file; without it the commands of a step of a kind are not known.
    `mentions`: read the scripts for `mentioned` too.
    """
    scan = _Scan(step)
    if step.body is None:
        scan.read(step.portable_command, step.cwd)
    elif folder:
        for text, where in load_kind(step.body.kind).commands(step.body.portable, folder, step.cwd):
            scan.read(text, where)
        if mentions:
            scan.mentions.code += load_kind(step.body.kind).names(step.body.portable, folder)
            scan.started_in[step.cwd] = None
    scan.uncalled()
    scan.folders_elsewhere()
    scan.environment(step)
    scan.leave_out_written()
    scan.found.written = frozenset(scan.writes.written)
    for path, written in scan.folders.items():
        if any(made.startswith(f"{path}/") for made in scan.writes.written) or is_large(path):
            scan.found.unknown.append(written)
        else:
            scan.found.files[path] = None
    scan.found.unknown = list(dict.fromkeys(scan.found.unknown))
    scan.found.named = scan.named_files(step)
    if mentions:
        scan.mention()
    return scan.found


class _Scan:
    """A walk from the text of a step's command through the scripts behind it."""

    def __init__(self, step: ResolvedStep) -> None:
        self.found = Scripts()
        self._files = StepFiles(step)
        self.writes = WrittenFiles()
        self.folders: dict[str, str] = {}
        """The folders that words name, each with its command."""
        self._folders = {
            name: [_below(step.cwd, self._files.mounted(part)) for part in value.split(":") if part]
            for name in ("PATH", "PYTHONPATH")
            if isinstance(value := step.env.get(name), str)
        }
        """The folders in which programs and modules are found, as far as the step names them; "$" if not known."""
        self.mentions = MentionedPaths(self._files)
        self.started_in: dict[str, None] = {}
        self._of_scripts: set[str] = set()
        """The folders of shell scripts."""
        self._variables = variables(step)
        self._functions: dict[str, list[tuple[str, str]]] = {}
        """The functions that texts define, each with its bodies and the folder of the text."""
        self._called: set[str] = set()
        self._calling: list[str] = []
        self._calls = 0
        self._is_lost = False
        """A text has entered a folder that is not known."""
        self._own: frozenset[str] = frozenset()
        """The variables that the text sets, whose values are not known."""
        self._kept: set[str] = set()
        """The files that only values of variables and texts to print name, which nothing has read yet."""
        self._set: set[str] = set(step.env)
        """The variables that any text sets."""
        self._in_folders: dict[str, str] = {}
        """The variables that are folders of files in words, each with its command."""
        self._by_item: dict[tuple[str, str], bool] = {}
        """The words with the item of a loop, each with its folder, and whether it may name a folder."""
        self._comes_later = bool(step.deps)
        self._later: dict[tuple[str, str], bool] = {}
        """The same for words of files that earlier steps may make: those that name nothing yet, and patterns."""
        self._read_later: set[str] = set()
        """The paths of those that not only values of variables and texts to print name."""
        inherited = [] if self._files.in_image else os.environ.get("PYTHONPATH", "").split(":")
        found = [_below(step.cwd, part) for part in inherited if part]
        inside = [path for path in found if f"{path}/".startswith(self._files.roots)]
        self._folders.setdefault("PYTHONPATH", inside)

    def read(self, text: str, folder: str, *, lists: bool = False, arguments: Sequence[Argument] = ()) -> str:
        """Add the scripts of a text for a shell that starts in a folder, and return the folder in which it ends.

        With `lists` it may print names of files. `arguments` are those of the script or function whose text it is.
        """
        outer, before = self._variables, self._own
        own = assigned(text)
        rest, functions = without_functions(text)
        for name, body in functions:
            self._functions.setdefault(name, []).append((body, folder))
        rest = with_arguments(rest, arguments)
        known = values_in(text, rest, self._taken_over(text, folder, outer))
        self._own = before.union(own)
        self._set.update(own)
        loops = {name: words.split() for name, words in _LISTED.findall(rest) if own.count(name) == 1}
        if prod(map(len, loops.values())) > MOST_TURNS:
            loops = {}
        for turn in product(*loops.values()):
            self._variables = {**known, **dict(zip(loops, turn, strict=True))}
            ends = self._read(VARIABLE.sub(self._value, _WORK_DIR.sub(".", rest)), folder, lists=lists)
        self._variables, self._own = outer, before
        return ends

    def _taken_over(self, text: str, folder: str, outer: Mapping[str, str]) -> Mapping[str, str]:
        """Return the variables of a text with those of the files that it sources, where a text stands there once."""
        found = dict(outer)
        for name in sourced(text):
            inner = text_of(self._files.place(folder, name))
            self._set.update(assigned(inner))
            found = values_in(inner, inner, found)
        return found

    def _call(self, words: Sequence[ShellWord], folder: str, *, lists: bool) -> str:
        """Add the scripts of a function that the text defines and calls; return the folder in which it ends."""
        name = words[0].text or ""
        if name in self._calling or self._calls >= MOST_TURNS:
            return folder
        self._calls += 1
        self._called.add(name)
        self._calling.append(name)
        for body, _ in self._functions[name]:
            folder = self.read(body, folder, lists=lists, arguments=[word.text for word in words[1:]])
        self._calling.pop()
        return folder

    def uncalled(self) -> None:
        """Add the scripts of functions that no known command calls, whose arguments are not known."""
        for name in [name for name in self._functions if name not in self._called]:
            for body, folder in self._functions[name]:
                self.read(body, folder)

    def _value(self, variable: re.Match[str]) -> str:
        """Return the value of a variable, or its default; the variable itself if neither is known."""
        name = variable[1] or variable[2]
        default = variable[0] if variable[3] is None or name in self._own else variable[3]
        return self._variables.get(name, default)

    def folders_elsewhere(self) -> None:
        """Tell the commands that read files in a folder whose variable nothing sets that is known."""
        for name, shown in self._in_folders.items():
            if not (
                self._files.in_image or name in self._set or name in self._variables or _OF_A_SHELL.fullmatch(name)
            ):
                self.found.unknown.append(shown)

    def environment(self, step: ResolvedStep) -> None:
        """Add the files that the environment of a step names, as assignments before a command would."""
        known = len(self.found.unknown)
        for name, value in declared(step).items():
            if not programs.OUTPUT.fullmatch(name):
                words = [f"{name}={part}" for part in dict.fromkeys((value, *re.split(r"[\s:]+", value))) if part]
                self._named(ShellCommand([ShellWord(word, word) for word in words]), (), step.cwd)
        del self.found.unknown[known:]  # a command that reads the whole project by a variable is rare

    def leave_out_written(self) -> None:
        """Leave out what is written before it is read, and tell what is read, or added to."""
        only_named = self._kept.intersection(self.writes.appended)
        for found in (self.found.files, self.folders):
            gone = [one for one in found if one in self.writes.folders or one in only_named or self.writes.is_new(one)]
            for path in gone:
                del found[path]
        added = {path: path in self.found.files for path in self.writes.appended}
        changed = [*self.writes.changed, *(path for path, is_read in added.items() if is_read)]
        only_added = [path for path, is_read in added.items() if not is_read and path.startswith(self._files.roots)]
        self.found.changed, self.found.appended = (
            tuple(
                one
                for one in paths
                if self._files.is_input(one) and _TEMPLATE not in one and not one.startswith(_SYSTEM)
            )
            for paths in (dict.fromkeys(changed), only_added)
        )

    def _was_read(self, path: str) -> bool:
        if path in self._kept:
            return False
        return path in self.found.files or any(
            self._files.place(folder, text) == path for folder, text in self._by_item
        )

    def named_files(self, step: ResolvedStep) -> NamedFiles | None:
        """Return the words that name files known when the step is looked up, except those that it writes."""
        by_item = self._by_item if step.loops else {}
        words = [
            (folder, text, may_be_folder)
            for (folder, text), may_be_folder in by_item.items()
            if not self.writes.is_new(self._files.place(folder, text))
        ]
        only_added = set(self.writes.appended).difference(self._read_later)
        for (folder, text), may_be_folder in self._later.items():
            path = self._files.place(folder, text)
            if path not in only_added and path not in self.writes.folders and not self.writes.is_new(path):
                is_filled = any(made.startswith(f"{path}/") for made in self.writes.written)
                words.append((folder, text, may_be_folder and not is_filled))
        roots = [root.rstrip("/") for root in self._files.roots]
        outside = not self._files.in_image
        return NamedFiles(words, roots, self._files.mounts, sorted(self._files.artifacts), outside) if words else None

    def mention(self) -> None:
        """Note the paths that the texts of programs and lists name, beside those that count."""
        self.found.mentioned = self.mentions.beside(self.found.files, self.started_in, self.writes)

    def _read(self, text: str, folder: str, *, lists: bool = False) -> str:
        """Add what a text without variables names, and return the folder in which it ends.

        With `lists` its output may be a list of files.
        """
        self.started_in[folder] = None
        was_lost = self._is_lost
        read = [*commands(text)]
        left: list[str] = []
        around: list[tuple[str, bool]] = []  # the folder before each parenthesis, and whether it is not known
        lists = lists or any(word.text in ("xargs", "read") for command in read for word in command.words)
        inside = False
        for command in read:
            around += [(folder, self._is_lost)] * (command.depth - len(around))
            if command.depth < len(around):
                folder, self._is_lost = around[command.depth]
                del around[command.depth :]
            outputs, inside = lists or inside, bool(command.words) and command.words[-1].written == "$"  # `$(` follows
            for word in command.words:
                for inner in substituted(word.written) if word.text is None else ():
                    self.read(inner, folder, lists=True)
                self.mentions.note_gap(word)
            words = without_wrappers(command.words)
            if any(word.text in programs.LISTED_FILES for word in command.words):
                given = (*command.opened, *([] if command.stdin is None else [command.stdin]))
                self.mentions.lists.update(self._files.place(folder, word.text or "") for word in given)
            if outputs:
                self.mentions.lists.update(
                    self._files.place(folder, name) for name in programs.given_lists(command.words)
                )
            before = self._folders
            self._assign(command.words, folder)
            if words and (words[0].text == "cd" or (words[0].text == "pushd" and len(words) > 1)):
                if words[0].text == "pushd":
                    left.append(folder)
                entered = next((word.text for word in words[1:] if not word.written.startswith("-")), None)
                self._is_lost = not (entered or "").startswith("/") and (self._is_lost or entered is None)
                folder = _below(folder, self._files.mounted(entered or ""))
                self.started_in[folder] = None
                continue
            if words and words[0].text == "popd" and left:
                folder = left.pop()
            now = folder
            if words and words[0].text in self._functions:
                now = self._call(words, folder, lists=lists)
            elif words:
                self._command(command._replace(words=words), folder)
            reads = not (words and programs.name_of(words[0].text or "") in programs.PLACES_ONLY)
            if reads:
                self._named(command, words, folder)
            self.writes.note(command, words, partial(self._files.place, folder), self._was_read)
            if not reads:
                self._named(command, words, folder)
            folder = now
            if words and words[0].text != "export":
                self._folders = before
        self._is_lost = was_lost
        return folder

    def _assign(self, words: Sequence[ShellWord], folder: str) -> None:
        """Note the values of PATH and PYTHONPATH that a command sets, their folders made absolute."""
        for word in words:
            match = ASSIGNED.fullmatch(word.written)
            if match is not None and match[1] in ("PATH", "PYTHONPATH"):
                value = _PATHS.sub("", re.sub(r"""["']""", "", match[2]))
                own = ["$" if "$" in part else self._files.place(folder, part) for part in value.split(":") if part]
                kept = self._folders.get(match[1], []) if _PATHS.search(match[2]) else []
                self._folders = {**self._folders, match[1]: [*own, *kept]}

    def _on_path(self, name: str, words: Sequence[ShellWord], folder: str) -> None:
        """Add the file of a program that a changed PATH finds."""
        for place in self._folders.get("PATH", ()):
            if place == "$" and not (name in programs.BUILTINS or shutil.which(name, path=os.defpath)):
                self._unknown(words)
                return
            if os.path.isfile(f"{place}/{name}"):
                self._file(ShellWord(f"{place}/{name}", name), words, folder)
                return

    def _command(self, command: ShellCommand, folder: str) -> None:
        words = command.words
        program = words[0].text or ""
        name = programs.name_of(program)
        if programs.is_interpreter(name):
            self._interpreter(command, folder, name)
        elif name == "make":
            self._unknown(words)
        elif "/" in program or words[0].text is None:
            self._code(words[0], words, folder)
        elif program:
            self._on_path(name, words, folder)
        if name == "trap" and len(words) > 2 and words[1].text:
            self.read(words[1].text, folder)
        if not (name in programs.TEXT_TOOLS or name in programs.AWKS or programs.SHELLS.fullmatch(name)):
            self.mentions.note_quotes(command, is_python=bool(programs.PYTHON.fullmatch(name)))
        if name in programs.AWKS:
            self.mentions.texts += [text for word in words[1:] for text in awk_paths(word.text or word.written)]
        elif name == "printf" and len(words) > 1 and words[1].text is not None:
            self.mentions.texts += self._files.fitting(printf_pattern(words[1].text), folder)
        if name in programs.FILE_PROGRAMS:
            for option, value in pairwise(words[1:]):
                if option.text in ("-f", "--file"):
                    self._code(value, words, folder)
        if name not in programs.TEXT_TOOLS and not programs.is_interpreter(name):
            for at, word in enumerate(words[1:], 1):  # behind a launcher
                inner = programs.name_of(word.text or "")
                if programs.is_interpreter(inner) and self._is_started(words[at + 1 :], folder):
                    self._interpreter(ShellCommand(words[at:]), folder, inner)
                    break

    def _is_started(self, rest: Sequence[ShellWord], folder: str) -> bool:
        """Whether words after the name of an interpreter may be its arguments: `pip install python numpy` has none."""
        given = rest[0].text if rest else ""
        return given is None or given.startswith("-") or os.path.exists(self._files.place(folder, given))

    def _named(self, command: ShellCommand, program: Sequence[ShellWord], folder: str) -> None:
        """Add the files of the project that the words of a command name, except those that it writes."""
        words = list(command.words)
        name = programs.name_of(program[0].text or "") if program else ""
        if name == "mkdir":
            self.writes.folders.update(self._files.place(folder, word.text) for word in program[1:] if word.text)
        if name in programs.TESTS or name in programs.WRITERS:
            words = words[: len(words) - len(program)]
        elif name in programs.COPIERS:
            words = words[:-1]
        if name not in programs.PLACES_ONLY:
            for before, word in pairwise([ShellWord("", ""), *words]):
                if before.text != "-m" and not (program and word is program[0]):
                    self._many(before, word, program, folder)
        words = [
            word
            for before, word in pairwise([ShellWord("", ""), *words])
            if before.text not in programs.WRITTEN and not programs.is_written_later(word)
        ]
        if name not in programs.PLACES_ONLY:
            self.mentions.note_fitting(words, folder)
            for word in words:
                if word.text is None and (elsewhere := _IN_FOLDER.match(word.written)):
                    self._in_folders.setdefault(elsewhere[1] or elsewhere[2], " ".join(one.written for one in program))
        for word in (*words, *command.opened, *([] if command.stdin is None else [command.stdin])):
            is_kept = name in programs.PLACES_ONLY or (not program and ASSIGNED.fullmatch(word.written) is not None)
            attached = _ATTACHED.fullmatch(word.text or "")
            given = (word.text or "", (attached[1] or attached[2]) if attached else "")
            for text in dict.fromkeys((*given, *(part.removeprefix("@") for part in ",".join(given).split(",")))):
                if text and _has_item(text):
                    self._by_item.setdefault((folder, text), False)
                path = self._files.place(folder, text) if text else ""
                if path in self.found.files:
                    if not is_kept:
                        self._kept.discard(path)
                elif path and self._files.counts(path):
                    self._file(ShellWord(text, word.written), program, folder)
                    if is_kept:
                        self._kept.add(path)
                elif path and self._may_be_made(path, text):
                    self._later.setdefault((folder, text), False)
                    if not is_kept:
                        self._read_later.add(path)

    def _many(self, before: ShellWord, word: ShellWord, program: Sequence[ShellWord], folder: str) -> None:
        """Add what a word names beside a single file: a folder, or all that a pattern finds; `before` is its option."""
        option, equals, value = word.written.partition("=")
        if programs.WRITES_INTO.fullmatch(option if equals else before.text or ""):
            return
        shown = " ".join(one.written for one in program) or word.written
        text = word.text
        if text is not None and equals and (text == word.written or _OPTION.fullmatch(option)):
            text = text.removeprefix(f"{option}=")
        pattern = (value if equals else word.written) if text is None else _quoted_pattern(text, program)
        if pattern:
            if not _GLOB.fullmatch(pattern):
                return
            if self._comes_later:
                self._later[folder, pattern] = True
            found = glob.glob(self._files.place(folder, pattern))
            if len(found) > _MOST_FILES:
                self.found.unknown.append(shown)
                return
        elif text:
            if _has_item(text):
                self._by_item[folder, text] = True
            found = [] if _TEMPLATE in text else [self._files.place(folder, text)]
            if found and self._may_be_made(found[0], text):
                self._later[folder, text] = True
        else:
            return
        for path in found:
            if os.path.isdir(path):
                if not (equals and path in self._of_scripts):  # `HERE=$(dirname "$0")` reads nothing yet
                    self._folder(path, shown)
            elif pattern and self._files.counts(path):
                self._add(path)

    def _may_be_made(self, path: str, text: str) -> bool:
        """Whether an earlier step may make what a word names."""
        return self._comes_later and self._files.may_be_made(path, text)

    def _folder(self, path: str, shown: str) -> None:
        own = f"{path}/"  # a file system that is mounted may count as a whole
        whole = own == self._files.roots[0] or any(root != own and root.startswith(own) for root in self._files.roots)
        if whole or os.path.exists(f"{path}/.git"):
            self.found.unknown.append(shown)
        elif own.startswith(self._files.roots) and self._files.is_input(path):
            self.folders[path] = shown

    def _interpreter(self, command: ShellCommand, folder: str, name: str) -> None:
        """Add what an interpreter is given: a file, a text, a module, or its standard input."""
        words = command.words
        python = bool(programs.PYTHON.fullmatch(name))
        shell = bool(programs.SHELLS.fullmatch(name))
        text = programs.TEXT_OPTIONS.get(name, "-c")[1]
        if name == "eval":
            self._evaluated(words, folder)
            return
        rest = iter(words[1:])
        for word in rest:
            option = word.text or ""
            if option == "-" or (shell and option == "-s"):
                break
            if python and option in programs.PYTHON_VALUES and next(rest, None):
                continue
            if option.startswith("-") and not option.startswith("--") and option[-1] in (text, "m" if python else text):
                given = next(rest, None)
                if given is None or given.text is None:
                    self._unknown(words)
                elif option.endswith(text):
                    self._text(given.text, folder, shell=shell, python=python)
                else:
                    self._module(given.text, words, folder)
                    self._inner_module(list(rest), words, folder)
                return
            if not option.startswith("-"):
                self._code(word, words, folder, shell=shell, python=python)
                return
        if command.stdin is not None:
            self._code(command.stdin, words, folder, shell=shell, python=python)
        elif command.piped:
            self._unknown(words)
        self._text(command.text, folder, shell=shell, python=python)

    def _evaluated(self, words: Sequence[ShellWord], folder: str) -> None:
        if any(word.text is None for word in words):
            self._unknown(words)
        else:
            self.read(" ".join(word.text or "" for word in words[1:]), folder)

    def _inner_module(self, rest: Sequence[ShellWord], words: Sequence[ShellWord], folder: str) -> None:
        """Add the module that a module runs: `-m cProfile -m mine`."""
        for option, value in pairwise(rest):
            if option.text == "-m":
                if value.text is None:
                    self._unknown(words)
                else:
                    self._module(value.text, words, folder)
                return

    def _text(self, text: str, folder: str, *, shell: bool, python: bool) -> None:
        """Add what a program names that stands in the command itself."""
        if python:
            self.mentions.programs.append(text)
            self._imports("", text, folder, "__main__")
        elif shell:
            self.read(text, folder)

    def _module(self, module: str, words: Sequence[ShellWord], folder: str) -> None:
        """Add the file of a module that is found from a folder; an installed one is none of the project's scripts."""
        stems = [_below(one, module.replace(".", "/")) for one in (folder, *self._folders["PYTHONPATH"])]
        places = (place for stem in stems for place in (f"{stem}.py", f"{stem}/__main__.py"))
        path = next((place for place in places if os.path.isfile(place)), None)
        if path is not None:
            self._add(path)
            self._imports("", f"import {module}", folder, "__main__")  # the packages around it
            self._imports(path, "", folder, module + (".__main__" if path.endswith("/__main__.py") else ""))
        elif not programs.is_installed(module):
            self._unknown(words)

    def _code(
        self, word: ShellWord, words: Sequence[ShellWord], folder: str, *, shell: bool = False, python: bool = False
    ) -> None:
        """Add a file that a command runs; in a folder that is not known it may be another one of that name."""
        if self._is_lost and word.text and not word.text.startswith("/"):
            self._unknown(words)
        self._file(word, words, folder, shell=shell, python=python)

    def _file(
        self, word: ShellWord, words: Sequence[ShellWord], folder: str, *, shell: bool = False, python: bool = False
    ) -> None:
        if word.text is None:
            self._unknown(words)
            return
        if word.text.startswith(_SYSTEM) or (_TEMPLATE in word.text and ITEM_TEMPLATE not in word.text):
            return  # an artifact counts as an input
        path = self._files.place(folder, word.text)
        try:
            about = os.stat(path)
        except (OSError, ValueError):
            if not (self._files.in_image and word.text.startswith("/")):
                self._unknown(words)
            return
        suffix = os.path.splitext(path)[1].lower()
        if python and stat.S_ISDIR(about.st_mode):
            path, suffix = f"{path}/__main__.py", ".py"
        if path in self.found.files or not os.path.isfile(path) or len(self.found.files) >= _MOST_FILES:
            return
        self._add(path)
        first = beginning(path)
        if python or suffix == ".py" or b"python" in first:
            self._imports(path, "", os.path.dirname(os.path.realpath(path)), "__main__")
        elif shell or suffix in (".sh", ".bash") or first.endswith(b"sh"):
            self._of_scripts.add(os.path.dirname(path))
            self.read(placed(text_of(path), path), folder, arguments=arguments_of(word, words))

    def _imports(self, path: str, text: str, folder: str, module: str) -> None:
        """Add the files of all local modules that a Python script, or a text of Python without a file, imports."""
        from weft.frontends.pipelines.code.dependencies import loaded_files  # parses Python, which few commands need

        searched = self._folders["PYTHONPATH"]
        if "$" in searched:
            self.found.unknown.append("Python, with a PYTHONPATH that is known only when it runs")
        known = [place for place in searched if place != "$" and not place.startswith(_SYSTEM)]
        known += self._searched(path, text, folder)
        with suppress(ProgramError):  # it will fail, or it is no Python
            for one in loaded_files((folder, *known), path or None, text, module):
                self._add(one)

    def _searched(self, path: str, text: str, folder: str) -> list[str]:
        """Return the folders that a program of Python may add to `sys.path`: those that its text names, then those in
        which the step has started, and those around the program.
        """
        from weft.frontends.pipelines.code.path_texts import paths_named

        if path:
            text = text_of(path)
        lines = _SEARCHED.findall(text)
        if not lines:
            return []
        literals = [one for line in lines for one in re.findall(r"""["']([^"'\n]+)["']""", line)]
        named = [*literals, *[one.text for one in paths_named(text)]]
        named = [self._files.mounted(one) for one in dict.fromkeys(named)]
        places = [_below(place, one) for one in named for place in (*self.started_in, folder)]
        places += self.started_in
        while f"{folder}/".startswith(self._files.roots):
            places.append(folder)
            folder = os.path.dirname(folder)
        return [
            place
            for place in dict.fromkeys(places)
            if f"{place}/".startswith(self._files.roots) and os.path.isdir(place)
        ]

    def _add(self, path: str) -> None:
        self.found.files[path] = None

    def _unknown(self, words: Sequence[ShellWord]) -> None:
        self.found.unknown.append(" ".join(word.written for word in words))


def _quoted_pattern(text: str, program: Sequence[ShellWord]) -> str:
    """Return a pattern in quotes, for which the program looks itself; "" for another text."""
    name = programs.name_of(program[0].text or "") if program else ""
    is_path = _GLOB.fullmatch(text) and _TEMPLATE not in text and re.search(r"\w/|[*?\]]\.\w", text)
    return text if is_path and name not in programs.MATCHERS else ""


def _has_item(text: str) -> bool:
    return ITEM_TEMPLATE in text and _TEMPLATE not in text.replace(ITEM_TEMPLATE, "")


def uncovered(files: Iterable[str], scopes: Iterable[str], cwd: str) -> list[list[str]]:
    """Return the files that lie in none of the scopes, each with its name for people: its path from `cwd`."""
    folders = [scope.rstrip("/") for scope in scopes]
    return [
        [os.path.relpath(file, cwd), file]
        for file in sorted(files)
        if not any(file == folder or file.startswith(f"{folder}/") for folder in folders)
    ]
