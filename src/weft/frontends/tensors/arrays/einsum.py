"""Sums of products in Einstein's notation."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors.arrays import shapes, statistics
from weft.frontends.tensors.arrays.array import Tensor, as_tensor
from weft.frontends.tensors.arrays.diagonals import diagonal
from weft.frontends.tensors.arrays.products import matmul
from weft.frontends.tensors.arrays.registry import public

if TYPE_CHECKING:
    from weft.frontends.tensors.types import DTypeLike


@public(ignored="optimize")
def einsum(subscripts: Any, *operands: Any, dtype: DTypeLike = None, casting: Any = "safe", order: str = "K") -> Tensor:
    """Return sums of products in Einstein's notation, two operands at a time, in the order that is cheapest.

    They are computed in `dtype`, by default that of the product of all operands, as NumPy does. Subscripts may be
    numbers too: `einsum(x, [0, 1], y, [1, 2], [0, 2])`. ValueError: the subscripts do not fit. TypeError: `casting`
    does not allow the type.
    """
    if not isinstance(subscripts, str):
        subscripts, operands = _lettered((subscripts, *operands))
    arrays = [as_tensor(one) for one in operands]
    common = np.result_type(*[one.dtype for one in arrays]) if dtype is None and arrays else np.dtype(dtype)
    arrays = [one if one.dtype == common else one.astype(common, casting=casting) for one in arrays]
    return _summed(subscripts, arrays).ordered(order)


def _lettered(given: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """Return subscripts as a text for operands that are each followed by a list of numbers, and perhaps one at the end.

    Letters are in the order of the numbers, since that is the default order of the result's axes.
    """
    letters = string.ascii_uppercase + string.ascii_lowercase

    def term(numbers: Sequence[Any]) -> str:
        named = [n if n is Ellipsis else int(n) for n in numbers]
        if any(n is not Ellipsis and not 0 <= n < len(letters) for n in named):
            raise ValueError(f"einsum: subscripts are {list(numbers)}: give numbers from 0 to {len(letters) - 1}")
        return "".join("..." if n is Ellipsis else letters[n] for n in named)

    operands = given[: len(given) // 2 * 2 : 2]
    inputs = ",".join(term(one) for one in given[1::2])
    return inputs + ("->" + term(given[-1]) if len(given) % 2 else ""), operands


def _summed(subscripts: str, arrays: list[Tensor]) -> Tensor:
    text = subscripts.replace(" ", "")
    inputs, _, output = text.partition("->")
    if "..." in text:
        arrays, text = _named(arrays, inputs.split(","), output if "->" in text else None)
        inputs, _, output = text.partition("->")
    terms = inputs.split(",")
    if len(terms) != len(arrays) or any(len(term) != x.ndim for term, x in zip(terms, arrays, strict=False)):
        raise ValueError("einsum: the subscripts do not fit the operands")
    for term, x in zip(terms, arrays, strict=True):
        for c in set(term):
            lengths = {n for letter, n in zip(term, x.shape, strict=True) if letter == c}
            if len(lengths) > 1:
                raise ValueError(f"einsum: {c} has the lengths {sorted(lengths)} in {term}; give equal ones")
    if "->" not in text:
        letters = "".join(terms)
        output = "".join(sorted({c for c in letters if letters.count(c) == 1}))
    terms, arrays = _squeezed(terms, arrays)
    text = f"{','.join(terms)}->{output}"
    dummies = [np.broadcast_to(np.empty(()), x.shape) for x in arrays]
    path = np.einsum_path(text, *dummies, optimize="greedy")[0][1:]
    parts = [_one_term(term, x) for term, x in zip(terms, arrays, strict=True)]
    for pair in path:
        chosen = [parts.pop(at) for at in sorted(pair, reverse=True)]
        kept = set(output).union(*[set(term) for term, _ in parts])
        made = chosen[0]
        for other in chosen[1:]:
            made = _two_terms(other, made, kept)
        parts.append(made)
    ((term, x),) = parts
    drop = tuple([at for at, c in enumerate(term) if c not in output])
    if drop:
        x = statistics.sum(x, axis=drop, dtype=x.dtype)
        term = "".join(c for c in term if c in output)
    return shapes.permute_dims(x, tuple([term.index(c) for c in output])) if output else x


def _named(arrays: list[Tensor], terms: list[str], output: str | None) -> tuple[list[Tensor], str]:
    """Return operands that are broadcast along the axes of an ellipsis, and subscripts that name these."""
    if len(terms) != len(arrays):
        raise ValueError("einsum: the subscripts do not fit the operands")
    counts = [
        x.ndim - len(term.replace("...", "")) if "..." in term else 0 for term, x in zip(terms, arrays, strict=True)
    ]
    if min(counts) < 0:
        raise ValueError("einsum: the subscripts do not fit the operands")
    free = [c for c in string.ascii_letters if not any(c in term for term in terms)][: max(counts)]
    starts = [term.find("...") for term in terms]
    lengths = [x.shape[at : at + n] for x, at, n in zip(arrays, starts, counts, strict=True) if n]
    common = np.broadcast_shapes(*lengths)
    made, names = [], []
    for x, term, at, n in zip(arrays, terms, starts, counts, strict=True):
        wanted = (*x.shape[:at], *common[len(common) - n :], *x.shape[at + n :]) if n else x.shape
        made.append(x if wanted == x.shape else shapes.spread(x, wanted))
        names.append(term.replace("...", "".join(free[len(free) - n :]) if n else ""))
    if output is None:
        letters = "".join(term.replace("...", "") for term in terms)
        output = "..." + "".join(sorted({c for c in letters if letters.count(c) == 1}))
    return made, ",".join(names) + "->" + output.replace("...", "".join(free))


def _squeezed(terms: list[str], arrays: list[Tensor]) -> tuple[list[str], list[Tensor]]:
    """Leave out the axes of length 1 that are stretched to the length which their letter has elsewhere."""
    longest: dict[str, int] = {}
    for term, x in zip(terms, arrays, strict=True):
        for c, n in zip(term, x.shape, strict=True):
            longest[c] = n if longest.get(c, 1) == 1 else longest[c]
    made = []
    for term, x in zip(terms, arrays, strict=True):
        for c, n in zip(term, x.shape, strict=True):
            if n not in (1, longest[c]):
                raise ValueError(
                    f"einsum: {c} has lengths {longest[c]} and {n}: operands could not be broadcast together"
                )
        drop = tuple([at for at, c in enumerate(term) if x.shape[at] != longest[c]])
        made.append(shapes.squeeze(x, drop) if drop else x)
    kept = [
        "".join(c for c, n in zip(t, x.shape, strict=True) if n == longest[c])
        for t, x in zip(terms, arrays, strict=True)
    ]
    return kept, made


def _one_term(term: str, x: Tensor) -> tuple[str, Tensor]:
    """Take the diagonal of a letter that occurs twice."""
    while len(set(term)) < len(term):
        letter = next(c for c in term if term.count(c) > 1)
        a = term.index(letter)
        b = term.index(letter, a + 1)
        x = diagonal(x, 0, a, b)
        term = term[:a] + term[a + 1 : b] + term[b + 1 :] + letter
    return term, x


def _two_terms(first: tuple[str, Tensor], second: tuple[str, Tensor], kept: set[str]) -> tuple[str, Tensor]:
    """Multiply two operands and sum over axes without later use, by one matrix product."""
    (left, x), (right, y) = first, second
    for only, (term, z) in enumerate(((left, x), (right, y))):
        other = right if only == 0 else left
        drop = tuple([at for at, c in enumerate(term) if c not in kept and c not in other])
        if drop:
            z = statistics.sum(z, axis=drop, dtype=z.dtype)
            term = "".join(c for c in term if c in kept or c in other)
        if only == 0:
            left, x = term, z
        else:
            right, y = term, z
    both = [c for c in left if c in right]
    batch = [c for c in both if c in kept]
    summed = [c for c in both if c not in kept]
    own, others = [c for c in left if c not in both], [c for c in right if c not in both]
    sizes = dict(zip(left, x.shape, strict=True)) | dict(zip(right, y.shape, strict=True))

    def flat(term: str, z: Tensor, groups: list[list[str]]) -> Tensor:
        order = [term.index(c) for group in groups for c in group]
        moved = shapes.permute_dims(z, tuple(order))
        shape = [sizes[c] for c in groups[0]]
        return shapes.reshape(moved, (*shape, *[_product(sizes, group) for group in groups[1:]]))

    product = matmul(flat(left, x, [batch, own, summed]), flat(right, y, [batch, summed, others]))
    term = "".join([*batch, *own, *others])
    return term, shapes.reshape(product, tuple([sizes[c] for c in term]))


def _product(sizes: dict[str, int], letters: Sequence[str]) -> int:
    made = 1
    for letter in letters:
        made *= sizes[letter]
    return made
