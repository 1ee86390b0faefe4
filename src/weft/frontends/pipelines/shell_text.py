"""The simple commands of a text for a shell, found without running anything."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Final, NamedTuple

from weft.model.patterns import late_pattern

TOKEN: Final = late_pattern(
    r"""(?P<blank>(?:[ \t\r]|\\\n)+)
    | (?P<comment>\#[^\n]*)
    | (?P<here><<-?[ \t]*(?P<quote>['"]?)(?P<end>[^\s'";&|()<>]+)(?P=quote))
    | (?P<redirect>[0-9]*(?:[<>]&|&?>>?|<<<|<))
    | (?P<tested>(?<![^\s;&|(])\[\[\s.*?\s\]\]|\$?\(\([^;\n]*?\)\))
    | (?P<operator>[;&|()\n`]+)
    | (?P<word>(?:(?<=[\w./=-])\$\([^()\n]*\)|\$\([^()\n]*\)(?=[\w./])
            |\\.|'[^']*'|"(?:\\.|[^"\\])*"|\$\{[^}]*\}|[^\s;&|()<>`'"\\])+)
    | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_PIECE: Final = late_pattern(r"""\\(.)|'([^']*)'|"((?:\\.|[^"\\])*)"|([^\\'"]+)""", re.DOTALL)
_PLAIN: Final = late_pattern(r"[\w./=:,+-]+")
_EXPANDED: Final = late_pattern(r"[$*?`]|\[.*\]")
_SUBSTITUTION: Final = late_pattern(r"\$\((?!\()((?:[^()]|\([^()]*\))+)\)|`([^`]+)`")
"""A command in a text for which the shell puts its output."""
_BRACES: Final = late_pattern(r"(?<![$\\{])\{([\w./+@%~:*?-]*(?:,[\w./+@%~:*?-]*)+|(\d{1,9})\.\.(\d{1,9}))\}(?!\})")
"""Words of Bash: `{a,b}` and `{1..3}`."""
MOST_TURNS: Final = 100
"""The most ways in which a text is read: values of a loop, words in braces."""
ASSIGNED: Final = late_pattern(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
_BEFORE: Final = frozenset(
    [
        "!",
        "builtin",
        "command",
        "do",
        "elif",
        "else",
        "env",
        "exec",
        "if",
        "nice",
        "nohup",
        "parallel",
        "setsid",
        "stdbuf",
        "sudo",
        "then",
        "time",
        "timeout",
        "until",
        "while",
        "xargs",
        "{",
    ]
)
"""Words that are followed by a command."""


class ShellWord(NamedTuple):
    """A word without its quotes; `text` is None if it is known only when the command runs."""

    text: str | None
    written: str


class ShellCommand(NamedTuple):
    """A simple command: its words, and its standard input: a file, a text, or the output of another command.

    `made` are the files that it writes by redirections, each with its redirection, such as `>>`. `opened` are those
    that it reads by other numbers than that of its standard input. `depth` is the number of parentheses around it.
    """

    words: Sequence[ShellWord]
    stdin: ShellWord | None = None
    text: str = ""
    piped: bool = False
    made: Sequence[tuple[ShellWord, str]] = ()
    depth: int = 0
    opened: Sequence[ShellWord] = ()


def commands(text: str) -> Iterator[ShellCommand]:
    """Yield the simple commands of a text for a shell."""
    words: list[ShellWord] = []
    stdin: ShellWord | None = None
    redirect, given, piped, ends, depth = "", "", False, [], 0
    made: list[tuple[ShellWord, str]] = []
    opened: list[ShellWord] = []
    at = 0
    while match := TOKEN.match(text, at):
        at = match.end()
        kind = match.lastgroup
        if match["here"]:
            ends.append((match["end"], not match["quote"]))
        elif match["redirect"]:
            redirect = match["redirect"]
        elif kind == "word":
            word = _word(match["word"])
            if not redirect:
                words += [_word(one) for one in _braces(match["word"])]
            elif redirect in ("<", "0<"):
                stdin = word
            elif re.fullmatch(r"[0-9]+<", redirect):
                opened.append(word)
            elif redirect == "<<<" and word.text is None:
                piped = True
            elif redirect == "<<<":
                given = word.text or ""
            elif ">" in redirect:
                made.append((word, redirect))
            redirect = ""
        elif kind in ("operator", "other"):
            here = at
            while ends and "\n" in match.group():
                end, is_expanded = ends.pop(0)
                found = re.compile(rf"^\t*{re.escape(end)}$", re.MULTILINE).search(text, at)
                begin, at = at, len(text) if found is None else found.end()
                for inner in substituted(text[begin:at]) if is_expanded else ():
                    yield from commands(inner)
            inside = depth
            depth += match.group().count("(") - match.group().count(")")
            if depth >= 0:
                yield ShellCommand(words, stdin, given or text[here:at], piped, made, inside, opened)
            depth = max(depth, 0)  # a pattern of `case` has no opening parenthesis
            piped = re.sub(r"\|\||[\s(]", "", match.group()) in ("|", "|&") or (piped and not words)
            words, stdin, redirect, given, made, opened = [], None, "", "", [], []
    yield ShellCommand(words, stdin, given, piped, made, depth, opened)


def substituted(text: str) -> list[str]:
    """Return the commands in a text for which the shell puts their output."""
    return ["".join(found) for found in _SUBSTITUTION.findall(text)]


def _braces(written: str) -> list[str]:
    """Return the words that Bash makes of one with braces, and the word itself if there are none, or too many."""
    if "{" not in written or re.search(r"""["'\\]""", written):
        return [written]
    found: list[Sequence[object]] = [
        range(int(first), int(last) + 1) if first else listed.split(",")
        for listed, first, last in _BRACES.findall(written)
    ]
    if not found or prod(map(len, found)) > MOST_TURNS:
        return [written]
    return [_filled(written, turn) for turn in product(*found)]


def _filled(written: str, words: Sequence[object]) -> str:
    rest = iter(words)
    return _BRACES.sub(lambda _: str(next(rest)), written)


def _word(written: str) -> ShellWord:
    if _PLAIN.fullmatch(written):
        return ShellWord(written, written)
    found = []
    for escaped, single, double, bare in _PIECE.findall(written):
        if _EXPANDED.search(bare) or (double and re.search(r"[$`]", double)):
            return ShellWord(None, written)
        found.append(escaped or single or re.sub(r"\\(.)", r"\1", double, flags=re.DOTALL) or bare)
    return ShellWord("".join(found), written)


_AWK_TEXT: Final = late_pattern(r'(>>?\s*)?"((?:[^"\\\n]|\\.)+)"')
"""A text in a program of awk, perhaps as the file that it writes."""
_CONVERSION: Final = late_pattern(r"%[-+ #0-9.*]*[A-Za-z]")


def awk_paths(program: str) -> list[str]:
    """Return the words in the texts of an awk program that it does not write to: `getline` reads files named so."""
    return [word for written, text in _AWK_TEXT.findall(program) if not written for word in text.split()]


def printf_pattern(form: str) -> str:
    """Return a pattern of the names that a format of `printf` may make; "" for one that is no path with gaps."""
    pattern = _CONVERSION.sub("*", form.replace("\\n", "").replace("%%", "%"))
    plain = re.sub(r"[*\s]", "", pattern)
    return pattern if "*" in pattern and re.search(r"\w/|\.\w", plain) and not re.search(r"\s", pattern) else ""


_GAP: Final = late_pattern(r"""\$(?:\w+|\{[^{}]*\}|\([^()]*\))|\{\}""")
"""A part of a word that only the shell knows, or the placeholder of `xargs`."""


def gap_pattern(word: str) -> str:
    """Return a pattern of the names that a word with variables may make; "" for one that is no path with gaps.

    A word that begins with a variable and a `/` has none, since it may lie in any folder.
    """
    text = re.sub(r"""["']""", "", word)
    pattern = _GAP.sub("\0", text)
    if "\0" not in pattern or pattern.startswith("\0/") or re.search(r"[\s$`(){}|\\]", pattern):
        return ""
    plain = pattern.replace("\0", "")
    named = re.search(r"\w/|\.\w|\w[.]$", plain) if not re.search(r"[*?\[]", plain) else None
    return pattern.replace("\0", "*") if named else ""


def without_wrappers(words: Sequence[ShellWord]) -> Sequence[ShellWord]:
    """Return a command without assignments and wrappers before it."""
    at, wrapped = 0, False
    while at < len(words):
        text = words[at].text or ""
        if text.rpartition("/")[2] in _BEFORE:
            wrapped = True
        elif not (ASSIGNED.match(words[at].written) or (wrapped and re.match(r"-|[0-9]", text))):
            break
        at += 1
    return words[at:]
