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
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise, product
from math import prod
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from weft.frontends.pipelines.item_files import ITEM_TEMPLATE, ItemFiles, counts_outside, is_input, on_this_machine
from weft.frontends.pipelines.item_files import below as _below
from weft.frontends.pipelines.kinds import load_kind
from weft.frontends.pipelines.shell_functions import EXPANDABLE, Argument, with_arguments, without_functions
from weft.frontends.pipelines.shell_text import (
    ASSIGNED,
    MOST_TURNS,
    ShellCommand,
    ShellWord,
    awk_paths,
    commands,
    gap_pattern,
    printf_pattern,
    substituted,
    without_wrappers,
)
from weft.frontends.pipelines.shell_variables import VARIABLE, assigned, values_in
from weft.frontends.pipelines.step_variables import declared, variables
from weft.model.errors import ProgramError

if TYPE_CHECKING:
    from weft.frontends.pipelines.code.path_texts import PathText
    from weft.frontends.pipelines.resolved import ResolvedStep

SUFFIXES: Final = frozenset({".bash", ".jar", ".js", ".pl", ".py", ".r", ".rb", ".sh", ".sql"})
"""The endings of scripts' names, in lower case."""
_ATTACHED: Final = re.compile(r"-[A-Za-z](.+)|[\w.@/:+~-]+?=(.+)", re.DOTALL)
"""The value of an option in the same word: `-fFILE`, `--file=FILE`, `if=FILE`, `+data.path=FILE`."""
_OPTION: Final = re.compile(r"[-+][\w.-]+|\w+(?:\.\w+)+")
"""A name of an option before a `=`, other than of a variable."""
_PATHS: Final = re.compile(r"\$\{(?:PYTHON)?PATH[^}]*\}|\$(?:PYTHON)?PATH\b")
_WORK_DIR: Final = re.compile(r"\$(?:PWD\b|\{PWD\}|\(\s*pwd\s*\))|`\s*pwd\s*`")
_TEMPLATE: Final = "{{"
_LISTED: Final = re.compile(r"\bfor\s+([A-Za-z_]\w*)\s+in((?:[ \t]+[\w./:=,+@%*?-]+)+)\s*[;\n]")
"""A loop of a shell over words that stand there, its variable and the words."""
_SHELLS: Final = re.compile(r"(?:ba|da|k|z|a)?sh|\.|source|eval")
_PYTHON: Final = re.compile(r"(?:python|pypy)[\d.]*")
_TEXT_OPTIONS: Final = {
    **dict.fromkeys(("perl", "ruby", "node", "Rscript", "julia", "lua", "tclsh"), "-e"),
    "php": "-r",
}
"""Other interpreters, with the option that is followed by the program itself."""
_TESTS: Final = frozenset({"[", "test"})
"""Programs whose files count by their existence alone, which the step may change."""
_LISTED_FILES: Final = ("done", "read", "xargs")
"""Words whose standard input may be a list of files: `done` ends a loop that reads lines."""
_LIST_OPTIONS: Final = frozenset({"-a", "--arg-file"})
"""Options of `xargs` that are followed by a list."""
_TEXT_TOOLS: Final = frozenset({"echo", "printf", "grep", "which", "type"})
"""Programs for which the name of an interpreter is a text like any other."""
_MATCHERS: Final = _TEXT_TOOLS.union(
    ["[", "case", "egrep", "expr", "find", "rg", "rsync", "sed", "tar", "test", "tr", "unzip", "zip"]
)
"""Programs that do not look for files by the patterns in quotes that they are given."""
_BUILTINS: Final = frozenset(
    [
        ":",
        "case",
        "cd",
        "declare",
        "done",
        "esac",
        "exit",
        "export",
        "fi",
        "for",
        "function",
        "hash",
        "jobs",
        "local",
        "read",
        "readonly",
        "return",
        "set",
        "shift",
        "shopt",
        "trap",
        "type",
        "ulimit",
        "umask",
        "unset",
        "wait",
        "}",
    ]
)
"""Words of a shell that no folder on PATH can replace."""
_WRITERS: Final = frozenset({"chmod", "mkdir", "mv", "rm", "rmdir", "tee", "touch", "truncate"})
"""Programs that write or remove the files that they are given."""
_AWKS: Final = frozenset({"awk", "gawk", "mawk", "nawk"})
_FILE_PROGRAMS: Final = frozenset({*_AWKS, "sed"})
"""Programs whose script follows the option `-f` or `--file`."""
_COPIERS: Final = frozenset({"cp", "install", "ln", "rsync", "scp"})
_PLACES_ONLY: Final = frozenset({"case", "cd", "echo", "printf", "popd", "pushd", "type", "which"})
"""Programs that read no folder that they are given."""
_WRITES_INTO: Final = re.compile(
    r"(?i)[-+]*(?:\w+[-_.])*(?:build|cache|checkpoints?|ckpts?|dest|destination|logs?|o|out|outputs?|paths?|pythonpath|results?|save"
    r"|target|temp|tmp|work)(?:[-_]?(?:dir|directory|folder|path|to))?|hydra\.(?:run|sweep)\.dir"
)
"""Names of options and variables that take a folder to write into, or to search for programs."""
_OUTPUT: Final = re.compile(r"(?i)(?:\w+_)*(?:dest|logs?|out|outputs?|results?|save|temp|tmp)(?:_?(?:file|path|to))?")
"""Names of variables of a step that hold a file to write."""
_AROUND: Final = re.compile(
    r"""["']?(?P<before>[\w./+@%-]*)["']?(?:\$\w+|\$\{\w+\}|\{\})["']?(?P<after>[\w./+@%-]*)["']?"""
)
"""A word with one variable, or with the placeholder of `xargs`."""
_OWN_PATH: Final = r"""\$(?:0|\{0\}|BASH_SOURCE|\{BASH_SOURCE(?:\[0\])?\})"""
_OWN_FOLDER: Final = re.compile(
    rf"""\$\(\s*dirname\s+(?:--\s+)?(?:"{_OWN_PATH}"|{_OWN_PATH})\s*\)|\$\{{(?:0|BASH_SOURCE)%/\*\}}"""
)
"""The folder of a shell script, as the script writes it."""
_ENTERED: Final = re.compile(
    r"""\$\(\s*cd\s+(?:--\s+)?"?([^"$`()&;]+?)"?\s*(?:>\s*/dev/null\s*)?(?:&&|;)\s*pwd(?:\s+-P)?\s*\)"""
)
"""The absolute path of a folder, as a shell script finds it."""
_SEARCHED: Final = re.compile(r"""\bsys\.path\s*(?:\.\s*(?:insert|append|extend)\s*\(|\+?=)([^\n]*)""")
"""A line of Python that adds folders to those in which modules are found."""
_GLOB: Final = re.compile(r"[\w./=:,+@%~^!*?\[\]-]*[*?\[][\w./=:,+@%~^!*?\[\]-]*")
_MOST_IN_FOLDER: Final = 10_000
_WRITTEN: Final = frozenset({"-o", "--out", "--output"})
"""Options that are followed by a file to write."""
_PYTHON_VALUES: Final = frozenset({"-W", "-X", "--check-hash-based-pycs"})
_SYSTEM: Final = ("/bin/", "/sbin/", "/usr/", "/lib", "/dev/", "/proc/", "/sys/")
_MOST_FILES: Final = 500
_MOST_BYTES: Final = 1 << 20


class Scripts(Struct):
    """The findings of a scan: absolute paths of files, and commands whose script is not known.

    `mentioned` are paths that programs name in their texts: the step may read them. `by_item` are the
    words that name files by the item of a loop, None without any.
    """

    files: dict[str, None] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    mentioned: dict[str, None] = field(default_factory=dict)
    by_item: ItemFiles | None = None


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
            scan.code += load_kind(step.body.kind).names(step.body.portable, folder)
            scan.started_in[step.cwd] = None
    scan.uncalled()
    scan.environment(step)
    for path in scan.made:  # a file that the command writes is no input of it, whatever other words name it
        scan.found.files.pop(path, None)
        scan.folders.pop(path, None)
    for path, written in scan.folders.items():
        if any(made.startswith(f"{path}/") for made in scan.made) or _is_large(path):
            scan.found.unknown.append(written)
        else:
            scan.found.files[path] = None
    scan.found.unknown = list(dict.fromkeys(scan.found.unknown))
    scan.found.by_item = scan.item_files()
    if mentions:
        scan.mention()
    return scan.found


class _Scan:
    """A walk from the text of a step's command through the scripts behind it."""

    def __init__(self, step: ResolvedStep) -> None:
        self.found = Scripts()
        self.made: set[str] = set()
        self.folders: dict[str, str] = {}
        """The folders that words name, each with its command."""
        self._mounts = {mount.mount_path: mount.source for mount in step.mounts if mount.source is not None}
        self._in_image = bool(step.docker_env)
        """A missing absolute path may be a file of the image."""
        self._roots = tuple(f"{folder}/" for folder in (step.cwd, *self._mounts.values()))
        self._artifacts = frozenset((*step.inputs.values(), *step.outputs.values()))
        self._folders = {
            name: [_below(step.cwd, self._mounted(part)) for part in value.split(":") if part]
            for name in ("PATH", "PYTHONPATH")
            if isinstance(value := step.env.get(name), str)
        }
        """The folders in which programs and modules are found, as far as the step names them; "$" if not known."""
        self._lists: set[str] = set()
        self._around: dict[tuple[str, str], None] = {("", ""): None}
        """What stands before and after a variable, or a placeholder of `xargs`, in a word."""
        self._programs: list[str] = []
        """Texts of Python in the command itself."""
        self.code: list[tuple[PathText, str]] = []
        """Paths that the code of a step's kind names, each with the folder of the code."""
        self._texts: list[str] = []
        """Paths in texts for other programs."""
        self._quoted: list[PathText] = []
        """Paths in quotes inside of words and of texts for other programs."""
        self._fits: list[str] = []
        """Files whose names fit words with unknown variables."""
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
        self._by_item: dict[tuple[str, str], bool] = {}
        """The words with the item of a loop, each with its folder, and whether it may name a folder."""
        inherited = [] if self._in_image else os.environ.get("PYTHONPATH", "").split(":")
        found = [_below(step.cwd, part) for part in inherited if part]
        inside = [path for path in found if f"{path}/".startswith(self._roots)]
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
        known = values_in(text, rest, outer)
        self._own = before.union(own)
        loops = {name: words.split() for name, words in _LISTED.findall(rest) if own.count(name) == 1}
        if prod(map(len, loops.values())) > MOST_TURNS:
            loops = {}
        for turn in product(*loops.values()):
            self._variables = {**known, **dict(zip(loops, turn, strict=True))}
            ends = self._read(VARIABLE.sub(self._value, _WORK_DIR.sub(".", rest)), folder, lists=lists)
        self._variables, self._own = outer, before
        return ends

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

    def environment(self, step: ResolvedStep) -> None:
        """Add the files that the environment of a step names, as assignments before a command would."""
        known = len(self.found.unknown)
        for name, value in declared(step).items():
            if not _OUTPUT.fullmatch(name):
                words = [f"{name}={part}" for part in dict.fromkeys((value, *re.split(r"[\s:]+", value))) if part]
                self._named(ShellCommand([ShellWord(word, word) for word in words]), (), step.cwd)
        del self.found.unknown[known:]  # a command that reads the whole project by a variable is rare

    def item_files(self) -> ItemFiles | None:
        """Return the words that name files by the item, except those that the command writes; None without any."""
        words = [
            (folder, text, may_be_folder)
            for (folder, text), may_be_folder in self._by_item.items()
            if _below(folder, self._mounted(text)) not in self.made
        ]
        roots = [root.rstrip("/") for root in self._roots]
        outside = not self._in_image
        return ItemFiles(words, roots, self._mounts, sorted(self._artifacts), outside) if words else None

    def mention(self) -> None:
        """Note the paths of the project that scripts of Python or awk, formats of `printf` and lists for `xargs` name,
        beside those that count.
        """
        from weft.frontends.pipelines.code.path_texts import QUOTING, PathText, paths_named

        told = QUOTING | {".awk", ".py"}
        named = [(path, "") for text in self._programs for path in paths_named(text)]
        named += [*self.code, *((path, "") for path in self._quoted)]
        fits = () if any(map(os.path.isfile, self._lists)) else self._fits  # a list tells exactly
        named += [(PathText(text), "") for text in (*self._texts, *fits)]
        for script in [path for path in self.found.files if path in self._lists or _suffix(path) in told]:
            with suppress(OSError), open(script, "rb") as file:
                text = file.read(_MOST_BYTES).decode(errors="replace")
                named += [(path, os.path.dirname(script)) for path in self._names_in(script, text)]
        counted = [*self.found.files, *self.made]
        for path, own in dict.fromkeys(named):
            for folder in [own] if path.own and own else self.started_in:
                found = _below(folder, self._mounted(path.text))
                if self._is_mentioned(found, path.is_part) and not any(
                    f"{found}/".startswith(f"{one}/") for one in counted
                ):
                    self.found.mentioned[found] = None

    def _names_in(self, script: str, text: str) -> Iterable[PathText]:
        """Return the paths that a file names: a list, or a script."""
        from weft.frontends.pipelines.code.path_texts import QUOTING, PathText, paths_named, quoted_paths

        if script in self._lists:
            return map(PathText, self._listed(text))
        if _suffix(script) in QUOTING:
            return quoted_paths(text, _suffix(script))
        return map(PathText, awk_paths(text)) if script.endswith(".awk") else paths_named(text)

    def _is_mentioned(self, path: str, is_part: bool) -> bool:
        """Whether a path in a program is a file of the project, or a folder of it that the command only reads."""
        if os.path.isdir(path):
            inside = path.startswith(self._roots) and f"{path}/" not in self._roots and self._is_input(path)
            return inside and not any(made.startswith(f"{path}/") for made in self.made)
        return not is_part and (self._is_of_project(path) or self._is_data_outside(path))

    def _listed(self, text: str) -> list[str]:
        """Return the names that the commands may make of a list's lines and words."""
        words = dict.fromkeys((*text.split(), *text.splitlines()))
        return [f"{before}{word}{after}" for word in words for before, after in self._around]

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
                if gap := _AROUND.fullmatch(word.written):
                    self._around[gap["before"], gap["after"]] = None
            self.made.update(_below(folder, self._mounted(word.text)) for word in command.made if word.text)
            words = without_wrappers(command.words)
            if any(word.text in _LISTED_FILES for word in command.words):
                given = (*command.opened, *([] if command.stdin is None else [command.stdin]))
                self._lists.update(_below(folder, self._mounted(word.text or "")) for word in given)
            if outputs:
                self._lists.update(_below(folder, self._mounted(name)) for name in _given_lists(command.words))
            before = self._folders
            self._assign(command.words, folder)
            if words and (words[0].text == "cd" or (words[0].text == "pushd" and len(words) > 1)):
                if words[0].text == "pushd":
                    left.append(folder)
                entered = next((word.text for word in words[1:] if not word.written.startswith("-")), None)
                self._is_lost = not (entered or "").startswith("/") and (self._is_lost or entered is None)
                folder = _below(folder, self._mounted(entered or ""))
                self.started_in[folder] = None
                continue
            if words and words[0].text == "popd" and left:
                folder = left.pop()
            now = folder
            if words and words[0].text in self._functions:
                now = self._call(words, folder, lists=lists)
            elif words:
                self._command(command._replace(words=words), folder)
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
                own = ["$" if "$" in part else _below(folder, self._mounted(part)) for part in value.split(":") if part]
                kept = self._folders.get(match[1], []) if _PATHS.search(match[2]) else []
                self._folders = {**self._folders, match[1]: [*own, *kept]}

    def _on_path(self, name: str, words: Sequence[ShellWord], folder: str) -> None:
        """Add the file of a program that a changed PATH finds."""
        for place in self._folders.get("PATH", ()):
            if place == "$" and not (name in _BUILTINS or shutil.which(name, path=os.defpath)):
                self._unknown(words)
                return
            if os.path.isfile(f"{place}/{name}"):
                self._file(ShellWord(f"{place}/{name}", name), words, folder)
                return

    def _command(self, command: ShellCommand, folder: str) -> None:
        words = command.words
        program = words[0].text or ""
        name = _name(program)
        if _is_interpreter(name):
            self._interpreter(command, folder, name)
        elif name == "make":
            self._unknown(words)
        elif "/" in program or words[0].text is None:
            self._code(words[0], words, folder)
        elif program:
            self._on_path(name, words, folder)
        if name == "trap" and len(words) > 2 and words[1].text:
            self.read(words[1].text, folder)
        if not (name in _TEXT_TOOLS or name in _AWKS or _SHELLS.fullmatch(name)):
            self._quotes(command, is_python=bool(_PYTHON.fullmatch(name)))
        if name in _AWKS:
            self._texts += [text for word in words[1:] for text in awk_paths(word.text or word.written)]
        elif name == "printf" and len(words) > 1 and words[1].text is not None:
            self._texts += self._fitting(printf_pattern(words[1].text), folder)
        if name in _FILE_PROGRAMS:
            for option, value in pairwise(words[1:]):
                if option.text in ("-f", "--file"):
                    self._code(value, words, folder)
        if name not in _TEXT_TOOLS and not _is_interpreter(name):
            for at, word in enumerate(words[1:], 1):  # behind a launcher
                inner = _name(word.text or "")
                if _is_interpreter(inner) and self._is_started(words[at + 1 :], folder):
                    self._interpreter(ShellCommand(words[at:]), folder, inner)
                    break

    def _quotes(self, command: ShellCommand, *, is_python: bool) -> None:
        """Note the paths in quotes inside of the words of a command and of its text; a program of Python is parsed."""
        from weft.frontends.pipelines.code.path_texts import quoted_paths

        programs = [after for before, after in pairwise(command.words) if before.text == "-c"] if is_python else []
        words = [word for word in command.words[1:] if word not in programs]
        for text in (*[word.text or word.written.strip('"') for word in words], "" if is_python else command.text):
            self._quoted += quoted_paths(text)

    def _fitting(self, pattern: str, folder: str) -> list[str]:
        """Return the files that fit a pattern of names that are known only when the step runs."""
        found = sorted(glob.glob(_below(folder, self._mounted(pattern)))) if pattern else []
        return found if len(found) <= _MOST_FILES else []

    def _is_started(self, rest: Sequence[ShellWord], folder: str) -> bool:
        """Whether words after the name of an interpreter may be its arguments: `pip install python numpy` has none."""
        given = rest[0].text if rest else ""
        return given is None or given.startswith("-") or os.path.exists(_below(folder, self._mounted(given)))

    def _named(self, command: ShellCommand, program: Sequence[ShellWord], folder: str) -> None:
        """Add the files of the project that the words of a command name, except those that it writes."""
        words = list(command.words)
        name = _name(program[0].text or "") if program else ""
        if name in ("mkdir", "tee"):
            self.made.update(_below(folder, self._mounted(word.text)) for word in program[1:] if word.text)
        if name in _TESTS or name in _WRITERS:
            words = words[: len(words) - len(program)]
        elif name in _COPIERS:
            words = words[:-1]
        if name not in _PLACES_ONLY:
            for before, word in pairwise([ShellWord("", ""), *words]):
                if before.text != "-m" and not (program and word is program[0]):
                    self._many(before, word, program, folder)
        words = [
            word
            for before, word in pairwise([ShellWord("", ""), *words])
            if before.text not in _WRITTEN and not _is_written_later(word)
        ]
        if name not in _PLACES_ONLY:
            self._gaps(words, folder)
        for word in (*words, *command.opened, *([] if command.stdin is None else [command.stdin])):
            attached = _ATTACHED.fullmatch(word.text or "")
            given = (word.text or "", (attached[1] or attached[2]) if attached else "")
            for text in dict.fromkeys((*given, *(part.removeprefix("@") for part in ",".join(given).split(",")))):
                if text and _has_item(text):
                    self._by_item.setdefault((folder, text), False)
                path = _below(folder, self._mounted(text)) if text else ""
                if path and path not in self.found.files and self._counts(path):
                    self._file(ShellWord(text, word.written), program, folder)

    def _gaps(self, words: Iterable[ShellWord], folder: str) -> None:
        """Note the files that words with unknown variables may name: those that are there and fit."""
        for word in words:
            option, equals, value = word.written.partition("=")
            if word.text is None and not (equals and _WRITES_INTO.fullmatch(option)):
                self._fits += self._fitting(gap_pattern(value if equals else word.written), folder)

    def _many(self, before: ShellWord, word: ShellWord, program: Sequence[ShellWord], folder: str) -> None:
        """Add what a word names beside a single file: a folder, or all that a pattern finds; `before` is its option."""
        option, equals, value = word.written.partition("=")
        if _WRITES_INTO.fullmatch(option if equals else before.text or ""):
            return
        shown = " ".join(one.written for one in program) or word.written
        text = word.text
        if text is not None and equals and (text == word.written or _OPTION.fullmatch(option)):
            text = text.removeprefix(f"{option}=")
        pattern = (value if equals else word.written) if text is None else _quoted_pattern(text, program)
        if pattern:
            if not _GLOB.fullmatch(pattern):
                return
            found = glob.glob(_below(folder, self._mounted(pattern)))
            if len(found) > _MOST_FILES:
                self.found.unknown.append(shown)
                return
        elif text:
            if _has_item(text):
                self._by_item[folder, text] = True
            found = [] if _TEMPLATE in text else [_below(folder, self._mounted(text))]
        else:
            return
        for path in found:
            if os.path.isdir(path):
                if not (equals and path in self._of_scripts):  # `HERE=$(dirname "$0")` reads nothing yet
                    self._folder(path, shown)
            elif pattern and self._counts(path):
                self._add(path)

    def _folder(self, path: str, shown: str) -> None:
        own = f"{path}/"  # a file system that is mounted may count as a whole
        whole = own == self._roots[0] or any(root != own and root.startswith(own) for root in self._roots)
        if whole or os.path.exists(f"{path}/.git"):
            self.found.unknown.append(shown)
        elif own.startswith(self._roots) and self._is_input(path):
            self.folders[path] = shown

    def _is_of_project(self, path: str) -> bool:
        """Whether a path is a regular file of the project and no artifact."""
        return os.path.isfile(path) and path.startswith(self._roots) and self._is_input(path)

    def _counts(self, path: str) -> bool:
        """Whether a word that names a path names an input: a file of the project, or one elsewhere on this machine."""
        if path.startswith(self._roots):
            return self._is_of_project(path)
        is_script = os.path.splitext(path)[1].lower() in SUFFIXES and os.path.isfile(path) and self._is_input(path)
        return is_script or self._is_data_outside(path)

    def _is_data_outside(self, path: str) -> bool:
        """Whether a path is a regular file outside of the project that a step may read as data."""
        outside = not self._in_image and not path.startswith(self._roots) and counts_outside(path)
        return outside and os.path.isfile(path) and self._is_input(path)

    def _is_input(self, path: str) -> bool:
        return is_input(path, self._artifacts)

    def _interpreter(self, command: ShellCommand, folder: str, name: str) -> None:
        """Add what an interpreter is given: a file, a text, a module, or its standard input."""
        words = command.words
        python = bool(_PYTHON.fullmatch(name))
        shell = bool(_SHELLS.fullmatch(name))
        text = _TEXT_OPTIONS.get(name, "-c")[1]
        if name == "eval":
            self._evaluated(words, folder)
            return
        rest = iter(words[1:])
        for word in rest:
            option = word.text or ""
            if option == "-" or (shell and option == "-s"):
                break
            if python and option in _PYTHON_VALUES and next(rest, None):
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
            self._programs.append(text)
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
        elif not _is_installed(module):
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
        path = _below(folder, self._mounted(word.text))
        try:
            about = os.stat(path)
        except (OSError, ValueError):
            if not (self._in_image and word.text.startswith("/")):
                self._unknown(words)
            return
        suffix = os.path.splitext(path)[1].lower()
        if python and stat.S_ISDIR(about.st_mode):
            path, suffix = f"{path}/__main__.py", ".py"
        if path in self.found.files or not os.path.isfile(path) or len(self.found.files) >= _MOST_FILES:
            return
        self._add(path)
        first = _beginning(path)
        if python or suffix == ".py" or b"python" in first:
            self._imports(path, "", os.path.dirname(os.path.realpath(path)), "__main__")
        elif shell or suffix in (".sh", ".bash") or first.endswith(b"sh"):
            with suppress(OSError), open(path, "rb") as file:
                text = file.read(_MOST_BYTES).decode(errors="replace")
                self._of_scripts.add(os.path.dirname(path))
                self.read(_placed(text, path), folder, arguments=_arguments(word, words))

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
            with suppress(OSError), open(path, "rb") as file:
                text = file.read(_MOST_BYTES).decode(errors="replace")
        lines = _SEARCHED.findall(text)
        if not lines:
            return []
        literals = [one for line in lines for one in re.findall(r"""["']([^"'\n]+)["']""", line)]
        named = [*literals, *[one.text for one in paths_named(text)]]
        named = [self._mounted(one) for one in dict.fromkeys(named)]
        places = [_below(place, one) for one in named for place in (*self.started_in, folder)]
        places += self.started_in
        while f"{folder}/".startswith(self._roots):
            places.append(folder)
            folder = os.path.dirname(folder)
        return [
            place for place in dict.fromkeys(places) if f"{place}/".startswith(self._roots) and os.path.isdir(place)
        ]

    def _add(self, path: str) -> None:
        self.found.files[path] = None

    def _unknown(self, words: Sequence[ShellWord]) -> None:
        self.found.unknown.append(" ".join(word.written for word in words))

    def _mounted(self, path: str) -> str:
        return on_this_machine(path, self._mounts)


def _arguments(script: ShellWord, words: Sequence[ShellWord]) -> list[Argument]:
    """Return the arguments of a script; `words` are the command."""
    return [word.text for word in words[words.index(script) + 1 :]] if script in words else []


def _placed(text: str, path: str) -> str:
    """Return the text of a shell script with its own folder."""
    folder = os.path.dirname(path)
    if not EXPANDABLE.fullmatch(folder):
        return text
    return _ENTERED.sub(lambda found: _below(folder, found[1]), _OWN_FOLDER.sub(lambda _: folder, text))


def _is_written_later(word: ShellWord) -> bool:
    """Whether a word gives a file to a variable with a name for output."""
    match = ASSIGNED.fullmatch(word.written)
    return match is not None and _OUTPUT.fullmatch(match[1]) is not None


def _quoted_pattern(text: str, program: Sequence[ShellWord]) -> str:
    """Return a pattern in quotes, for which the program looks itself; "" for another text."""
    name = _name(program[0].text or "") if program else ""
    is_path = _GLOB.fullmatch(text) and _TEMPLATE not in text and re.search(r"\w/|[*?\]]\.\w", text)
    return text if is_path and name not in _MATCHERS else ""


def _has_item(text: str) -> bool:
    return ITEM_TEMPLATE in text and _TEMPLATE not in text.replace(ITEM_TEMPLATE, "")


def _name(program: str) -> str:
    return program.rpartition("/")[2]


def _suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def _is_interpreter(name: str) -> bool:
    return bool(_SHELLS.fullmatch(name) or _PYTHON.fullmatch(name) or name in _TEXT_OPTIONS)


def _is_installed(module: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(module.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False


def _is_large(folder: str) -> bool:
    """Whether a folder has more files and folders than a look at each step may cost."""
    count = 0
    for _, folders, files in os.walk(folder):
        count += len(folders) + len(files)
        if count > _MOST_IN_FOLDER:
            return True
    return False


def _beginning(path: str) -> bytes:
    """Return the line after `#!` of a file, empty without one."""
    with suppress(OSError), open(path, "rb") as file:
        first = file.readline(200)
        return first[2:].strip() if first.startswith(b"#!") else b""
    return b""


def uncovered(files: Iterable[str], scopes: Iterable[str], cwd: str) -> list[list[str]]:
    """Return the files that lie in none of the scopes, each with its name for people: its path from `cwd`."""
    folders = [scope.rstrip("/") for scope in scopes]
    return [
        [os.path.relpath(file, cwd), file]
        for file in sorted(files)
        if not any(file == folder or file.startswith(f"{folder}/") for folder in folders)
    ]


def _given_lists(words: Sequence[ShellWord]) -> Iterator[str]:
    """Yield the files that a command prints as they are, or takes as lists of arguments."""
    program = without_wrappers(words)
    name = _name(program[0].text or "") if program else ""
    for before, word in pairwise(words):
        if word.text and ((name == "cat" and not word.text.startswith("-")) or before.text in _LIST_OPTIONS):
            yield word.text
