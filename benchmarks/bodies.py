"""What the tasks of both sides call: plain functions of a module that either environment can import."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

PIECES = 300
WIDE = 10_000
"""Sources and readers of the wide shuffle."""
CHUNK_VALUES = 4_000_000
"""Float64 values of a chunk: 32 MB."""


def noop(value: int) -> int:
    """Do nothing."""
    return value


def increment(value: int) -> int:
    """Add one."""
    return value + 1


def add(left: int, right: int) -> int:
    """Add two values."""
    return left + right


def add_both(values: Sequence[int]) -> int:
    """Add the values of a list."""
    return sum(values)


def recur(depth: int) -> int:
    """Spawn itself `depth` levels deep, and return the number of levels."""
    import weft.remote

    return int(weft.remote.spawn(recur, (depth - 1,)).fetch()) + 1 if depth else 0


def pieces(index: int) -> list[int]:
    """Return one piece for each reader: no two tasks return the same ones."""
    return list(range(index * PIECES, (index + 1) * PIECES))


def few_pieces(index: int) -> dict[int, int]:
    """Return pieces for 3 of `WIDE` readers, spread over all of them."""
    return {(7919 * index + at * (WIDE // 3)) % WIDE: index + at for at in range(3)}


def total_of_pieces(reader: int, rows: Sequence[Sequence[int]]) -> int:
    """Take one reader's piece of every row and add them up."""
    return sum([row[reader] for row in rows])


def chunk(index: int) -> Any:
    """Make 32 MB; the first value names the process that made it, the others are `index`."""
    import numpy

    made = numpy.full(CHUNK_VALUES, float(index))
    made[0] = os.getpid()
    return made


def total_of_chunk(made: Any) -> float:
    """Add up a chunk that another process made."""
    if int(made[0]) == os.getpid():
        raise AssertionError("a chunk was made where it is added up")
    return float(made[1:].sum())


def total_of_foreign_chunks(chunks: Sequence[Any]) -> tuple[int, int, float]:
    """Add up the chunks that other processes made: who adds, how many, the total."""
    own = os.getpid()
    foreign = [made for made in chunks if int(made[0]) != own]
    return own, len(foreign), float(sum(made[1:].sum() for made in foreign))


class Token:
    """A value that counts how many of its kind are alive, and the most that ever were."""

    alive = 0
    most = 0
    _lock = threading.Lock()

    def __init__(self, value: int) -> None:
        self.value = value
        with Token._lock:
            Token.alive += 1
            Token.most = max(Token.most, Token.alive)

    def __del__(self) -> None:
        with Token._lock:
            Token.alive -= 1


def token(value: int) -> Token:
    """Make a token."""
    return Token(value)


def merge(tokens: Sequence[Token]) -> Token:
    """Make the token of a sum."""
    return Token(sum(each.value for each in tokens))


def merge_two(left: Token, right: Token) -> Token:
    """Make the token of a sum of two."""
    return Token(left.value + right.value)
