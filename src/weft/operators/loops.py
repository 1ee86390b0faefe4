"""Chains of element-wise ufuncs as one compiled loop each, by numba where it is installed.

NumPy's calls read and write each intermediate value in the cache; a loop keeps it in a register. Only operations whose
results IEEE 754 determines become part of a loop, in the dtypes that NumPy computes in, so a loop gives NumPy's values
bit for bit: a result does not depend on whether and when a loop was compiled. A sum at the end of a chain becomes part
of its loop, too, in the order in which `numpy.add.reduce` adds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

import numpy as np

from weft.operators.region_steps import KernelKind, OperandSlot, RegionStep

DEAR: Final = 300_000_000
"""The elements times operations by NumPy after which an expression is compiled: they take about as long as that."""
MOST_OPERANDS: Final = 8
"""The most arrays that a loop reads: the compiler checks that none overlaps the result, and with more it gives up."""
_MOST_EXPRESSIONS: Final = 1_000
"""The expressions that a process keeps; NumPy computes further ones."""

_FLOATS: Final = frozenset("fd")
_BOOLEANS: Final = frozenset("?")
READ: Final = frozenset("?bBhHiIlLqQfd")
"""The dtypes of operands, native to the machine."""
_ARITHMETIC: Final = {
    np.add: "{0} + {1}",
    np.subtract: "{0} - {1}",
    np.multiply: "{0} * {1}",
    np.divide: "{0} / {1}",
    np.negative: "-{0}",
    np.positive: "{0}",
    np.absolute: "abs({0})",
    np.square: "{0} * {0}",
    np.sqrt: "sqrt({0})",
    np.less: "{0} < {1}",
    np.less_equal: "{0} <= {1}",
    np.greater: "{0} > {1}",
    np.greater_equal: "{0} >= {1}",
    np.equal: "{0} == {1}",
    np.not_equal: "{0} != {1}",
}
"""Functions of floating-point numbers: add, subtract, multiply, divide and sqrt round correctly, others are exact."""
_LOGIC: Final = {
    np.logical_and: "{0} & {1}",
    np.logical_or: "{0} | {1}",
    np.logical_not: "not {0}",
    np.bitwise_and: "{0} & {1}",
    np.bitwise_or: "{0} | {1}",
    np.bitwise_xor: "{0} ^ {1}",
    np.invert: "not {0}",
}
"""Functions of booleans."""
SIMPLE: Final = frozenset({*_ARITHMETIC, *_LOGIC})
"""The functions of which chains may become loops: a few instructions for each element."""


class LoopOperation(NamedTuple):
    """One call of a ufunc: its text, the names of the values that it reads, and the dtypes of its loop by letters.

    The operands of an expression are x0, x1 and so on, and its operations make y0, y1 and so on.
    """

    text: str
    reads: tuple[str, ...]
    types: str


class LoopExpression(NamedTuple):
    """Operations that one loop computes; the last one makes its result.

    `operands` has the letters of their dtypes: a capital S before those of single numbers, which every element shares.
    A loop that is `summed` returns the sum of the results and stores none.
    """

    operands: tuple[str, ...]
    operations: tuple[LoopOperation, ...]
    summed: bool = False


def operation(fn: Any, given: Sequence[Any], dtype: np.dtype[Any]) -> tuple[str, str] | None:
    """Return the text of a ufunc's call and its dtypes, arguments first; None if a loop would not give NumPy's bits.

    `given` has the dtypes of arrays, and the numbers themselves: NumPy converts those of Python to other arguments.
    """
    text = _ARITHMETIC.get(fn) or _LOGIC.get(fn)
    if text is None:
        return None
    kinds = [
        x if isinstance(x, np.dtype) else type(x) if type(x) in (int, float) else np.asarray(x).dtype for x in given
    ]
    try:
        *read, made = fn.resolve_dtypes((*kinds, None))
    except (TypeError, ValueError):
        return None
    within = _FLOATS if fn in _ARITHMETIC else _BOOLEANS
    if (
        made != dtype
        or any(x.char not in within for x in read)
        or not all(x.isnative for x in kinds if type(x) is np.dtype)
    ):
        return None
    return text, "".join(x.char for x in (*read, made))


def readable(dtype: np.dtype[Any]) -> bool:
    """Return whether a loop can read an array of a dtype."""
    return dtype.isnative and dtype.char in READ


class LoopChain(NamedTuple):
    """Steps that one loop may compute: their places among the steps of tiles, the last one's value its result."""

    members: tuple[int, ...]
    operands: tuple[Any, ...]
    expression: LoopExpression


def kind_of(x: Any, shape: tuple[int, ...]) -> str:
    """Return the letter of an operand's dtype, S before it if it is a single number; "" if no loop can read it."""
    if not readable(x.dtype):
        return ""
    if x.size == 1:
        return f"S{x.dtype.char}"
    return str(x.dtype.char) if x.shape == shape and x.flags.c_contiguous and x.flags.aligned else ""


def call_loop(loop: Callable[..., None], expression: LoopExpression, *given: Any) -> None:
    """Call a loop with the operands and `out` of a tile."""
    *operands, out = given
    kinds = expression.operands
    loop(
        *[x.reshape(())[()] if kind[0] == "S" else x.reshape(-1) for x, kind in zip(operands, kinds, strict=True)],
        out.reshape(-1),
    )


def chains(
    steps: Sequence[tuple[RegionStep, int]], wanted: Sequence[int], kinds: Mapping[int, str], own: set[int]
) -> list[LoopChain]:
    """Return the chains of two or more steps of which nobody else reads anything but the last value.

    `kinds` tells the operands from outside that a loop can read, and `own` the steps whose values it can write.
    """
    readers: dict[int, set[int]] = {}
    for at, (step, _) in enumerate(steps):
        for arg in step.args:
            if type(arg) is OperandSlot:
                readers.setdefault(arg.at, set()).add(at)
    dtypes = {slot: np.dtype(kind[-1]) for slot, kind in kinds.items()} | {slot: step.dtype for step, slot in steps}
    operations = {
        at: found
        for at, (step, slot) in enumerate(steps)
        if step.kind is KernelKind.UFUNC
        and not step.kwargs
        and slot in own
        and all(arg.at in dtypes for arg in step.args if type(arg) is OperandSlot)
        and (
            found := operation(
                step.fn, [dtypes[arg.at] if type(arg) is OperandSlot else arg for arg in step.args], step.dtype
            )
        )
    }
    taken: set[int] = set()
    made: list[LoopChain] = []
    for root in sorted(operations, reverse=True):
        members = {root}
        for at in range(root - 1, -1, -1):
            read = readers.get(steps[at][1], set())
            if at in operations and at not in taken and steps[at][1] not in wanted and read and read <= members:
                members.add(at)
        if root in taken or len(members) == 1:
            continue
        chain = _chain([(*steps[at], operations[at]) for at in sorted(members)], tuple(sorted(members)), kinds, dtypes)
        if chain is not None:
            taken |= members
            made.append(chain)
    return made


def _chain(
    steps: Sequence[tuple[RegionStep, int, tuple[str, str]]],
    members: tuple[int, ...],
    kinds: Mapping[int, str],
    dtypes: Mapping[int, np.dtype[Any]],
) -> LoopChain | None:
    """Return the chain of steps, each with its slot and its operation; None if no loop can read what it reads."""
    own = {slot: f"y{at}" for at, (_, slot, _) in enumerate(steps)}
    operands: dict[Any, tuple[Any, str]] = {}
    operations = []
    for step, _, (text, types) in steps:
        reads = []
        for arg, kind in zip(step.args, types, strict=False):
            key = arg
            if type(arg) is not OperandSlot:
                number = np.asarray(arg).astype(kind)[()]
                key = kind, number.tobytes()
                operands.setdefault(key, (number, f"S{kind}"))
            elif arg.at not in own:
                operands.setdefault(key, (arg, kinds.get(arg.at) or dtypes[arg.at].char))
            reads.append(f"x{list(operands).index(key)}" if key in operands else own[arg.at])
        operations.append(LoopOperation(text, tuple(reads), types))
    arrays = [kind for _, kind in operands.values() if kind[0] != "S"]
    if not 1 <= len(arrays) <= MOST_OPERANDS or not READ.issuperset(arrays):
        return None
    expression = LoopExpression(tuple([kind for _, kind in operands.values()]), tuple(operations))
    return LoopChain(members, tuple([arg for arg, _ in operands.values()]), expression)


LANES: Final = 8
"""The partial sums of `numpy.add.reduce`: one for each remainder of an element's place."""
_LEAF: Final = 128
"""The most elements that it adds without dividing them into halves."""


def with_sum(chain: LoopChain, tail: RegionStep) -> LoopChain | None:
    """Return the chain with the sum that `tail` makes of its results; None if its loop would not give NumPy's bits.

    All numbers are of one dtype: only then are the partial sums computed side by side, which is faster than NumPy.
    """
    operands, operations, _ = chain.expression
    letters = {kind[-1] for kind in operands}.union(*[one.types for one in operations])
    if tail.fn is not np.add or letters != {tail.dtype.char} or not letters <= _FLOATS or not _numpy_adds_so():
        return None
    return chain._replace(expression=LoopExpression(operands, operations, summed=True))


def call_sum(loop: Callable[..., Any], expression: LoopExpression, *operands: Any) -> Any:
    """Return the sum of a loop over the flat operands of a tile, whose size is a multiple of `LANES`."""
    alone = [kind[0] == "S" for kind in expression.operands]
    size = len(operands[alone.index(False)])
    return loop(*[np.asarray(x)[()] if one else x for x, one in zip(operands, alone, strict=True)], *_leaves(size))


@lru_cache(16)
def _leaves(size: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the sizes of the leaves into which `numpy.add.reduce` divides `size` elements, and their levels."""

    def divided(size: int, level: int) -> list[tuple[int, int]]:
        if size <= _LEAF:
            return [(size, level)]
        half = size // 2 // LANES * LANES
        return divided(half, level + 1) + divided(size - half, level + 1)

    sizes, levels = zip(*divided(size, 0), strict=True)
    return np.array(sizes, np.uint64), np.array(levels, np.int64)


@cache
def _numpy_adds_so() -> bool:
    """Return whether this NumPy adds in the order of the loops: eight partial sums for each leaf, leaves by pairs."""
    x = np.random.default_rng(1).random(_LEAF // 2 * 9).astype(np.float32)
    sums: list[tuple[Any, int]] = []
    at = 0
    for size, level in zip(*_leaves(len(x)), strict=True):
        lanes = np.add.accumulate(x[at : at + int(size)].reshape(-1, LANES))[-1]
        at += int(size)
        total = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]))
        while sums and sums[-1][1] == level:
            total = sums.pop()[0] + total
            level -= 1
        sums.append((total, level))
    return bool(sums[0][0] == np.add.reduce(x))


@cache
def there() -> bool:
    """Return whether numba is installed."""
    return find_spec("numba") is not None


class _Loops:
    """The compiled loops of this process. Safe for threads: while one compiles, others go on with NumPy."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[LoopExpression, Callable[..., Any] | None] = {}
        self._done: dict[LoopExpression, int] = {}

    def get(self, expression: LoopExpression, elements: int) -> Callable[..., Any] | None:
        """Return the loop of an expression that is about to be computed for `elements`; None if NumPy is to do it."""
        if expression in self._made:
            return self._made[expression]
        with self._lock:
            if expression in self._made:
                return self._made[expression]
            done = self._done.get(expression, 0)
            if expression not in self._done and len(self._done) + len(self._made) >= _MOST_EXPRESSIONS:
                return None
            self._done[expression] = done + elements * len(expression.operations)
            if done < DEAR:
                return None
            del self._done[expression]
            self._made[expression] = None
        self._made[expression] = _compiled(expression)
        return self._made[expression]


LOOPS: Final = _Loops()


def _source(expression: LoopExpression) -> str:
    """Return the text of a function `loop(x0, x1, ..., out)` of flat arrays and numbers."""
    names = [f"x{at}" for at in range(len(expression.operands))]
    return "\n".join(
        [
            f"def loop({', '.join(names)}, out):",
            "    for i in range(out.size):",
            *[f"        {line}" for line in _lines(expression, "i", "")],
            f"        out[i] = y{len(expression.operations) - 1}",
        ]
    )


def _lines(expression: LoopExpression, at: str, mark: str) -> Iterator[str]:
    """Yield the statements that compute the element at an index; `mark` is the end of the names of their values."""
    element = {f"x{n}": f"x{n}" if kind[0] == "S" else f"x{n}[{at}]" for n, kind in enumerate(expression.operands)}
    for n, (text, reads, types) in enumerate(expression.operations):
        *kinds, made = ["b1" if one == "?" else one for one in types]
        given = [f"{kind}({element.get(name, name + mark)})" for name, kind in zip(reads, kinds, strict=True)]
        yield f"y{n}{mark} = {made}({text.format(*given)})"


def _summing_source(expression: LoopExpression) -> str:
    """Return the text of a function `loop(x0, x1, ..., sizes, levels)` that adds up as `numpy.add.reduce` does.

    Each leaf has eight partial sums. Two sums of the same level are the halves of one of the level above. Indices are
    unsigned, since the compiler does not vectorise those that could count from the end.
    """
    names = [f"x{n}" for n in range(len(expression.operands))]
    last, kind = len(expression.operations) - 1, expression.operations[-1].types[-1]
    return "\n".join(
        [
            f"def loop({', '.join(names)}, sizes, levels):",
            "    sums, above = empty(64, of), empty(64, int64)",
            "    top = 0",
            "    begin = uint(0)",
            "    for leaf in range(sizes.size):",
            *[f"        r{n} = {kind}(-0.0)" for n in range(LANES)],
            f"        for i in range(begin, begin + sizes[leaf], uint({LANES})):",
            *[f"            {line}" for n in range(LANES) for line in _lines(expression, f"i + uint({n})", f"_{n}")],
            *[f"            r{n} += y{last}_{n}" for n in range(LANES)],
            "        total = ((r0 + r1) + (r2 + r3)) + ((r4 + r5) + (r6 + r7))",
            "        level = levels[leaf]",
            "        while top > 0 and above[top - 1] == level:",
            "            top -= 1",
            "            level -= 1",
            "            total = sums[top] + total",
            "        sums[top], above[top] = total, level",
            "        top += 1",
            "        begin += sizes[leaf]",
            "    return sums[0]",
        ]
    )


def _compiled(expression: LoopExpression) -> Callable[..., Any] | None:
    """Return the loop of an expression; None if the installed numba cannot compile it, for this NumPy or at all."""
    try:
        import numba

        made = np.dtype(expression.operations[-1].types[-1])
        scope: dict[str, Any] = {"f": numba.float32, "d": numba.float64, "b1": numba.boolean, "sqrt": np.sqrt}
        scope |= {"uint": numba.uint64, "int64": np.int64, "empty": np.empty, "of": made.type}
        exec(_summing_source(expression) if expression.summed else _source(expression), scope)
        kinds = [(kind[0] == "S", numba.from_dtype(np.dtype(kind[-1]))) for kind in expression.operands]
        operands = [of if alone else numba.types.Array(of, 1, "C", readonly=True) for alone, of in kinds]
        result = numba.from_dtype(made)
        if expression.summed:
            leaves = [numba.types.Array(of, 1, "C") for of in (numba.uint64, numba.int64)]
            signature = result(*operands, *leaves)
        else:
            signature = numba.void(*operands, numba.types.Array(result, 1, "C"))
        with _straight_code_vectorised():
            loop: Callable[..., Any] = numba.njit([signature], nogil=True, error_model="numpy")(scope["loop"])
    except Exception:  # noqa: BLE001 - nothing is lost: NumPy computes it
        return None
    return loop


@contextmanager
def _straight_code_vectorised() -> Iterator[None]:
    """Let the compiler vectorise the eight partial sums, which are no loop. numba has no argument for it."""
    from numba.core import config
    from numba.core.compiler_lock import global_compiler_lock

    flags: Any = config  # its names are made when it is imported
    with global_compiler_lock:
        before = flags.SLP_VECTORIZE
        flags.SLP_VECTORIZE = 1
        try:
            yield
        finally:
            flags.SLP_VECTORIZE = before
