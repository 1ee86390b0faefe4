"""Writes a tree of nodes as YAML that reads back as the same tree.

Plain words stay bare, long texts are blocks, and all other texts are in double quotes, which all versions of YAML read
alike.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from weft.documents import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*")
_AMBIGUOUS: Final = frozenset(
    ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"]
)  # words that some versions of YAML read as other types
_BLOCK: Final = re.compile(
    r"(?:[^\s\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff][^\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]*\n?|\n)+"
)
_WIDTH: Final = 100


def to_yaml(tree: yaml.Node) -> str:
    """Return the text of a tree."""
    return "".join(f"{line}\n" for line in _lines(tree, ""))


def _lines(node: yaml.Node, indent: str) -> Iterator[str]:
    if isinstance(node, yaml.Mapping):
        for key, value in node.entries.items():
            name = _text(key)
            flat = _flat(value)
            if flat is not None and len(indent) + len(name) + len(flat) + 2 <= _WIDTH:
                yield f"{indent}{name}: {flat}"
            elif isinstance(value, yaml.Scalar):
                yield from _long(f"{indent}{name}: ", value, f"{indent}  ")
            else:
                yield f"{indent}{name}:"
                yield from _lines(value, f"{indent}  ")
    elif isinstance(node, yaml.Sequence):
        for item in node.items:
            flat = _flat(item)
            if flat is not None or isinstance(item, yaml.Scalar):
                yield f"{indent}- {flat if flat is not None else _inline(item)}"
                continue
            first, *further = _lines(item, f"{indent}  ")
            yield f"{indent}- {first.removeprefix(indent)[2:]}"
            yield from further
    else:
        yield f"{indent}{_inline(node)}"


def _long(lead: str, scalar: yaml.Scalar, indent: str) -> Iterator[str]:
    text = scalar.value
    if isinstance(text, str) and "\n" in text and _BLOCK.fullmatch(text) and not text.endswith("\n\n"):
        yield f"{lead}|{'' if text.endswith(chr(10)) else '-'}"
        yield from (f"{indent}{line}" if line else "" for line in text.removesuffix("\n").split("\n"))
    else:
        yield f"{lead}{_inline(scalar)}"


def _flat(node: yaml.Node) -> str | None:
    """Return a node as one line if it is simple enough."""
    if isinstance(node, yaml.Scalar):
        return None if isinstance(node.value, str) and "\n" in node.value else _inline(node)
    inner = node.items if isinstance(node, yaml.Sequence) else tuple(node.entries.values())
    if any(not isinstance(one, yaml.Scalar) for one in inner):
        return None
    text = _inline(node)
    return text if len(text) <= _WIDTH else None


def _inline(node: yaml.Node) -> str:
    if isinstance(node, yaml.Sequence):
        return f"[{', '.join(map(_inline, node.items))}]"
    if isinstance(node, yaml.Mapping):
        return f"{{{', '.join(f'{_text(key)}: {_inline(value)}' for key, value in node.entries.items())}}}"
    value = node.value
    if isinstance(value, float):  # some versions of YAML require the point
        digits, e, power = repr(value).partition("e")
        return f"{digits}{'' if '.' in digits else '.0'}{e}{power}"
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _text(text: str) -> str:
    if _WORD.fullmatch(text) and text.lower() not in _AMBIGUOUS:
        return text
    return '"' + "".join(map(_character, text)) + '"'


def _character(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if char == "\n":
        return "\\n"
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
