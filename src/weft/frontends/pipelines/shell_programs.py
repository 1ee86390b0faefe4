"""What programs do with the words that a command gives them: which run code, which write, which only print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from weft.frontends.pipelines.shell_text import ASSIGNED, ShellWord, without_wrappers
from weft.model.patterns import late_pattern

SHELLS: Final = late_pattern(r"(?:ba|da|k|z|a)?sh|\.|source|eval")
PYTHON: Final = late_pattern(r"(?:python|pypy)[\d.]*")
TEXT_OPTIONS: Final = {
    **dict.fromkeys(("perl", "ruby", "node", "Rscript", "julia", "lua", "tclsh"), "-e"),
    "php": "-r",
}
"""Other interpreters, with the option that is followed by the program itself."""
TESTS: Final = frozenset({"[", "test"})
"""Programs whose files count by their existence alone, which the step may change."""
LISTED_FILES: Final = ("done", "read", "xargs")
"""Words whose standard input may be a list of files: `done` ends a loop that reads lines."""
LIST_OPTIONS: Final = frozenset({"-a", "--arg-file"})
"""Options of `xargs` that are followed by a list."""
TEXT_TOOLS: Final = frozenset({"echo", "printf", "grep", "which", "type"})
"""Programs for which the name of an interpreter is a text like any other."""
MATCHERS: Final = TEXT_TOOLS.union(
    ["[", "case", "egrep", "expr", "find", "rg", "rsync", "sed", "tar", "test", "tr", "unzip", "zip"]
)
"""Programs that do not look for files by the patterns in quotes that they are given."""
BUILTINS: Final = frozenset(
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
REMOVERS: Final = frozenset({"rm", "rmdir"})
WRITERS: Final = frozenset({"chmod", "mkdir", "mv", "tee", "touch", "truncate", *REMOVERS})
"""Programs that write or remove the files that they are given."""
APPENDING: Final = frozenset({"-a", "--append"})
"""Options of `tee`."""
AWKS: Final = frozenset({"awk", "gawk", "mawk", "nawk"})
FILE_PROGRAMS: Final = frozenset({*AWKS, "sed"})
"""Programs whose script follows the option `-f` or `--file`."""
COPIERS: Final = frozenset({"cp", "install", "ln", "rsync", "scp"})
PLACES_ONLY: Final = frozenset({"case", "cd", "echo", "printf", "popd", "pushd", "type", "which"})
"""Programs that read no folder that they are given."""
WRITES_INTO: Final = late_pattern(
    r"(?i)[-+]*(?:\w+[-_.])*(?:build|cache|checkpoints?|ckpts?|dest|destination|logs?|o|out|outputs?|paths?|pythonpath|results?|save"
    r"|target|temp|tmp|work)(?:[-_]?(?:dir|directory|folder|path|to))?|hydra\.(?:run|sweep)\.dir"
)
"""Names of options and variables that take a folder to write into, or to search for programs."""
OUTPUT: Final = late_pattern(r"(?i)(?:\w+_)*(?:dest|logs?|out|outputs?|results?|save|temp|tmp)(?:_?(?:file|path|to))?")
"""Names of variables of a step that hold a file to write."""
WRITTEN: Final = frozenset({"-o", "--out", "--output"})
"""Options that are followed by a file to write."""
PYTHON_VALUES: Final = frozenset({"-W", "-X", "--check-hash-based-pycs"})


def name_of(program: str) -> str:
    """Return the name of a program that a command gives by its path."""
    return program.rpartition("/")[2]


def is_interpreter(name: str) -> bool:
    """Whether a program runs code that it is given."""
    return bool(SHELLS.fullmatch(name) or PYTHON.fullmatch(name) or name in TEXT_OPTIONS)


def given_lists(words: Sequence[ShellWord]) -> Iterator[str]:
    """Yield the files that a command prints as they are, or takes as lists of arguments."""
    program = without_wrappers(words)
    name = name_of(program[0].text or "") if program else ""
    for before, word in pairwise(words):
        if word.text and ((name == "cat" and not word.text.startswith("-")) or before.text in LIST_OPTIONS):
            yield word.text


def is_written_later(word: ShellWord) -> bool:
    """Whether a word gives a file to a variable with a name for output."""
    match = ASSIGNED.fullmatch(word.written)
    return match is not None and OUTPUT.fullmatch(match[1]) is not None


def is_installed(module: str) -> bool:
    """Whether a module of Python is found here outside of the project."""
    from importlib.util import find_spec

    try:
        return find_spec(module.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False
