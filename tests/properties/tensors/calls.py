"""How each public function is called: a table of roles of arguments, and how each role is drawn.

A row names functions and their arguments: `x axis? keepdims? out?` is an array, and keywords that are given sometimes.
`offset=count?` is a keyword `offset` of the role `count`, `*arrays` are several arguments.
"""

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from tests.properties.tensors.drawing import array, broadcastable, shape

MIXED = ["bool", "int8", "uint8", "int64", "uint64", "float16", "float32", "float64", "complex64", "complex128"]
REAL = MIXED[:-2]
INTS = MIXED[1:5]
FLOATS = ["float32", "float64"]
ODD_NUMBERS = [0, 1, -1, 2.5, 300, -(2**40), 1e300, float("nan"), float("inf"), True, 1j]
"""Python numbers, some of which do not fit into small types."""
GIVEN = 0.35
"""How often a keyword is given."""
WRONG = 0.06
"""How often an argument does not fit."""


class Drawn:
    """The arguments of one call. `x` is the first array."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.args: list[Any] = []
        self.kwargs: dict[str, Any] = {}
        self.out = False

    @property
    def x(self) -> Any:
        for one in self.args:
            if isinstance(one, np.ndarray):
                return one
            if isinstance(one, list) and one and isinstance(one[0], np.ndarray):
                return one[0]
        return np.zeros(())

    def wrong(self) -> bool:
        return self.rng.random() < WRONG

    def size(self, least: int = 0, most: int = 3) -> tuple[int, ...]:
        return shape(self.rng, least, most, 5)  # type: ignore[no-any-return]

    def new(self, size: tuple[int, ...], types: list[str] = MIXED, *, special: bool = True) -> Any:
        return array(self.rng, size, types, special=special)


Role = Callable[[Drawn], Any]
ROLES: dict[str, Role] = {}


def role(function: Role) -> Role:
    ROLES[function.__name__.strip("_")] = function
    return function


# ---------------------------------------------------------------------------------------------------------- arrays


@role
def x(d: Drawn) -> Any:
    return d.new(d.size())


@role
def real(d: Drawn) -> Any:
    return d.new(d.size(), REAL)


@role
def floating(d: Drawn) -> Any:
    return d.new(d.size(), FLOATS)


@role
def ints(d: Drawn) -> Any:
    return d.new(d.size(), INTS)


@role
def signs(d: Drawn) -> Any:
    """Numbers whose product does not overflow: that would depend on the order."""
    found = d.new(d.size(), MIXED, special=False)
    return found if found.dtype.kind in "biu" else np.asarray(np.sign(found.real), found.dtype)


@role
def calm(d: Drawn) -> Any:
    """Numbers without NaN and infinities."""
    return d.new(d.size(), special=False)


@role
def calm_real(d: Drawn) -> Any:
    return d.new(d.size(), REAL, special=False)


@role
def signal(d: Drawn) -> Any:
    """Numbers to transform: some, as NumPy 2.4 returns any numbers for none."""
    while not (found := _signal(d)).size:
        pass
    return found


def _signal(d: Drawn) -> Any:
    return d.new(d.size(), [one for one in MIXED if one != "float16"], special=False)


@role
def vector(d: Drawn) -> Any:
    return d.new(d.size(1, 1) if not d.wrong() else d.size(), special=False)


@role
def plane(d: Drawn) -> Any:
    return d.new(d.size(1, 2) if not d.wrong() else d.size(), special=False)


@role
def planes(d: Drawn) -> Any:
    return d.new(d.size(2, 3) if not d.wrong() else d.size(), special=False)


def _matrix(d: Drawn, square: bool, types: list[str]) -> Any:
    n = d.rng.randint(1, 4)
    size = (*d.size(0, 1), n, n if square else d.rng.randint(1, 4))
    found = d.new(d.size() if d.wrong() else size, types, special=False)
    return found if found.dtype.kind == "b" else np.sign(found.real).astype(found.dtype)


LINALG = ["bool", "int8", "uint8", "int64", "float16", "float32", "float64", "complex64", "complex128"]


@role
def matrix(d: Drawn) -> Any:
    return _matrix(d, False, LINALG)


@role
def square(d: Drawn) -> Any:
    """A square matrix that has an inverse, unless its elements are too few."""
    found = _matrix(d, True, LINALG)
    if found.ndim < 2 or found.shape[-1] != found.shape[-2]:
        return found
    eye = np.eye(found.shape[-1]).astype(found.dtype)
    return found if found.dtype.kind == "b" else found + eye * found.dtype.type(7)


@role
def positive(d: Drawn) -> Any:
    """A symmetric, positive definite matrix."""
    found = square(d)
    if found.ndim < 2 or found.shape[-1] != found.shape[-2] or found.dtype.kind in "bu":
        return found
    return (found + found.swapaxes(-1, -2).conj() + 6 * np.eye(found.shape[-1]).astype(found.dtype)).astype(found.dtype)


@role
def right(d: Drawn) -> Any:
    """The right side of equations."""
    n = d.x.shape[-1] if d.x.ndim else 1
    n += d.wrong()
    size = (n,) if d.rng.random() < 0.5 else (n, d.rng.randint(1, 3))
    return d.new(size, LINALG, special=False)


@role
def factor(d: Drawn) -> Any:
    """The second factor of a matrix product."""
    n = d.x.shape[-1] if d.x.ndim else 1
    size = d.rng.choice([(n,), (n, 3), (2, n, 2), (n + 1,), ()])
    return d.new(size, special=False)


def next_to(d: Drawn, size: tuple[int, ...]) -> tuple[int, ...]:
    """Draw a shape that is broadcast with another one, or seldom not."""
    if d.wrong():
        return (*size, 7)
    found = size[d.rng.randint(0, len(size)) :] if d.rng.random() < 0.4 else size
    return tuple([1 if d.rng.random() < 0.2 else n for n in found])


@role
def y(d: Drawn) -> Any:
    """A second array, or a Python number."""
    if d.rng.random() < 0.2:
        return d.rng.choice(ODD_NUMBERS)
    return d.new(next_to(d, d.x.shape))


@role
def real_y(d: Drawn) -> Any:
    return d.rng.choice(ODD_NUMBERS[:-1]) if d.rng.random() < 0.2 else d.new(next_to(d, d.x.shape), REAL)


@role
def same(d: Drawn) -> Any:
    """A second array of the same shape."""
    return d.new((*d.x.shape, 2) if d.wrong() else d.x.shape, special=False)


@role
def arrays(d: Drawn) -> Any:
    """Arrays to be joined: of one shape, or seldom not."""
    size = d.size(0, 3)
    types = MIXED if d.rng.random() < 0.7 else [d.rng.choice(MIXED)]
    return [d.new(d.size() if d.wrong() else size, types) for _ in range(d.rng.randint(1, 3))]


@role
def together(d: Drawn) -> Any:
    """Arrays that are broadcast with one another."""
    return [d.new(one) for one in broadcastable(d.rng, d.rng.randint(1, 3), 2)]


@role
def vectors(d: Drawn) -> Any:
    return [vector(d) for _ in range(d.rng.randint(0, 3))]


@role
def mask(d: Drawn) -> Any:
    return d.new(next_to(d, d.x.shape), ["bool"])


@role
def condition(d: Drawn) -> Any:
    return d.new(d.size(), ["bool", "int8"])


# ---------------------------------------------------------------------------------------------------------- numbers


@role
def axis(d: Drawn) -> Any:
    """One axis, counted from either end; seldom one that is not there, or something else."""
    n = d.x.ndim
    if n == 0:
        return d.rng.choice([0, 1, -1, -2])
    if d.wrong():
        return d.rng.choice([n, n + 1, -n - 1, -n - 2, (0, 1), 0.5])
    found = d.rng.randrange(-n, n)
    return np.int64(found) if d.rng.random() < 0.1 else found


@role
def axis_or_none(d: Drawn) -> Any:
    return None if d.rng.random() < 0.3 else axis(d)


@role
def axes(d: Drawn) -> Any:
    """None, one axis, or several of them; seldom one twice."""
    if d.rng.random() < 0.6:
        return axis_or_none(d)
    n = d.x.ndim
    found = [one - n if d.rng.random() < 0.3 else one for one in d.rng.sample(range(n), d.rng.randint(0, n))]
    return (*found, found[0]) if found and d.wrong() else tuple(found)


@role
def edge_order(d: Drawn) -> Any:
    return d.rng.choice([1, 2, 3] if d.wrong() else [1, 2])


@role
def plane_axes(d: Drawn) -> Any:
    return d.rng.choice([(0, 1), (-1, 0), (0, 0), (1, 2), (0, 5)])


@role
def all_axes(d: Drawn) -> Any:
    found = d.rng.sample(range(d.x.ndim), d.x.ndim)
    return (*found, 0) if d.wrong() else tuple(found)


@role
def flag(d: Drawn) -> Any:
    return d.rng.random() < 0.5


@role
def count(d: Drawn) -> Any:
    return d.rng.choice([0, 1, 2, 3, -1, -2])


@role
def places(d: Drawn) -> Any:
    return d.rng.choice([0, 1, 2, -1])


@role
def number(d: Drawn) -> Any:
    return d.rng.choice([0, 1, -2, 2.5, True])


@role
def initial(d: Drawn) -> Any:
    return d.rng.choice([0, 1, 2.5, True])


@role
def fraction(d: Drawn) -> Any:
    return d.rng.choice([0, 0.1, 1e-3, 1.0])


@role
def odd_number(d: Drawn) -> Any:
    return d.rng.choice(ODD_NUMBERS)


@role
def bound(d: Drawn) -> Any:
    kind = d.rng.random()
    if kind < 0.25:
        return None
    return d.rng.choice([-1, 0, 1, 2.5, 300]) if kind < 0.7 else d.new(next_to(d, d.x.shape), REAL)


@role
def dtype(d: Drawn) -> Any:
    """A type that all numbers fit into; numbers that do not fit become any number."""
    safe = [one for one in MIXED if np.can_cast(d.x.dtype, one)]
    return d.rng.choice([np.dtype(d.rng.choice(safe)), d.rng.choice(safe), None])


@role
def any_dtype(d: Drawn) -> Any:
    return d.rng.choice([*MIXED, None, np.float32])


@role
def numbers_dtype(d: Drawn) -> Any:
    return d.rng.choice(MIXED[1:])


@role
def wider(d: Drawn) -> Any:
    return d.rng.choice([None, "complex128", np.float64 if d.x.dtype.kind != "c" else "complex128"])


@role
def order(d: Drawn) -> Any:
    return d.rng.choice(["C", "F", "K", "A", "X"] if d.wrong() else ["C", "F"])


@role
def casting(d: Drawn) -> Any:
    return d.rng.choice(["no", "equiv", "safe", "same_kind", "unsafe"])


@role
def new_shape(d: Drawn) -> Any:
    """A shape with as many elements, or seldom with others."""
    n = d.x.size
    found = [(n,), (1, n), (n, 1), -1, n, (-1, 1), [n]]
    if n % 2 == 0:
        found += [(2, n // 2), (-1, 2)]
    return d.rng.choice([(n + 1,), (-1, -1), (-2,), (n, 0)] if d.wrong() else found)


@role
def wider_shape(d: Drawn) -> Any:
    found = tuple([d.rng.choice([n, 3]) if n == 1 else n for n in d.x.shape])
    return (*found, 2) if d.wrong() else (2, *found) if d.rng.random() < 0.4 else found


@role
def shape_(d: Drawn) -> Any:
    found = d.size()
    return d.rng.choice([(-1,), (2, -3), "ab", 2.5]) if d.wrong() else found[0] if len(found) == 1 else found


@role
def length(d: Drawn) -> Any:
    return d.rng.choice([0, 1, 3, 5, -1])


@role
def span(d: Drawn) -> Any:
    return d.rng.choice([0, 1, 5, -3, 2.5, 0.1, 10])


@role
def step(d: Drawn) -> Any:
    return d.rng.choice([1, 2, -1, 0.5, 0])


@role
def parts(d: Drawn) -> Any:
    return d.rng.choice([1, 2, 3, 0, -1, [1], [0, 2], [2, 1], [-1], []])


@role
def indices(d: Drawn) -> Any:
    """Numbers of elements; seldom of one that is not there."""
    a = d.kwargs.get("axis")
    n = d.x.size if a is None or not isinstance(a, int) or not -d.x.ndim <= a < d.x.ndim else d.x.shape[a]
    size = d.size(0, 2)
    if d.wrong() or not n:
        return d.rng.choice([n, -n - 1, [n], 0.5, [True]])
    made = np.array([d.rng.randrange(-n, n) for _ in range(int(np.prod(size)))], np.int64).reshape(size)
    return made.astype(d.rng.choice(["int64", "int8"]))


@role
def along(d: Drawn) -> Any:
    """Indices for `take_along_axis`, along the last axis."""
    n = d.x.shape[-1] if d.x.ndim else 1
    size = (*d.x.shape[:-1], 3) if not d.wrong() else (3,)
    return np.array([d.rng.randrange(-n, n) if n else 0 for _ in range(int(np.prod(size)))], np.int64).reshape(size)


@role
def places_of(d: Drawn) -> Any:
    """What `delete` and `insert` take: a number, several, a slice, a mask."""
    a = d.kwargs.get("axis")
    n = d.x.size if a is None or not isinstance(a, int) or not -d.x.ndim <= a < d.x.ndim else d.x.shape[a]
    if d.wrong():
        return d.rng.choice([n + 1, -n - 2, [n + 1]])
    return d.rng.choice([0, n - 1 if n else 0, [0] if n else [], slice(0, 2), slice(None, None, 2), [-1] if n else 0])


@role
def kth(d: Drawn) -> Any:
    a = d.kwargs.get("axis", -1)
    n = d.x.size if a is None else d.x.shape[a] if isinstance(a, int) and -d.x.ndim <= a < d.x.ndim else 1
    return d.rng.choice([n, -n - 1, 0.5]) if d.wrong() or not n else d.rng.choice([0, n - 1, -1, [0, n // 2]])


@role
def shift(d: Drawn) -> Any:
    return d.rng.choice([0, 1, -2, 7, (1, 2), 2**40])


@role
def repeats(d: Drawn) -> Any:
    return d.rng.choice([0, 1, 3, [2], -1, 1.5] if d.wrong() else [0, 1, 3, [2]])


@role
def repetitions(d: Drawn) -> Any:
    return d.rng.choice([0, 2, (2,), (1, 2), (2, 1, 2), ()])


@role
def pad_width(d: Drawn) -> Any:
    return d.rng.choice([0, 1, 2, (1, 2), (0, 1), -1, 1.5] if d.wrong() else [0, 1, 2, (1, 2), (0, 1)])


@role
def bins(d: Drawn) -> Any:
    return d.rng.choice([1, 3, 10, [0, 1, 2], [0.5, 2.5], 0, [2, 1]])


@role
def edges(d: Drawn) -> Any:
    return d.rng.choice([[0, 1, 2], [2.5, 1, -1], [], [1, 3, 2], [0]])


@role
def limits(d: Drawn) -> Any:
    return d.rng.choice([None, (0, 5), (-1.5, 2), (3, 1), (2, 2), (0, float("nan"))])


@role
def whole(d: Drawn) -> Any:
    """Whole numbers that are not negative; seldom something else."""
    if d.wrong():
        return d.new(d.size(), MIXED)
    return np.abs(d.new(d.size(1, 1), ["int64", "int8", "uint8", "bool"]).astype("int64") % 9).astype("int8")


@role
def weights(d: Drawn) -> Any:
    if d.wrong():
        return d.new(d.size(), REAL, special=False)
    return d.new(d.x.shape, ["int8", "uint8", "int64", "float32", "float64"], special=False)


@role
def quantile(d: Drawn) -> Any:
    return d.rng.choice([0, 0.5, 1, 0.3, [0.25, 0.75], 1.5, -0.1] if d.wrong() else [0, 0.5, 1, 0.3, [0.25, 0.75], []])


@role
def percent(d: Drawn) -> Any:
    return d.rng.choice([0, 50, 100, 12.5, [25, 75], 101] if d.wrong() else [0, 50, 100, 12.5, [25, 75]])


@role
def method(d: Drawn) -> Any:
    return d.rng.choice(
        ["linear", "lower", "higher", "nearest", "midpoint", "hazen", "median_unbiased", "inverted_cdf"]
    )


@role
def side(d: Drawn) -> Any:
    return d.rng.choice(["left", "right", "middle"] if d.wrong() else ["left", "right"])


@role
def mode(d: Drawn) -> Any:
    return d.rng.choice(["raise", "wrap", "clip"])


@role
def padding(d: Drawn) -> Any:
    """A mode, and now and then the keyword that it takes."""
    found = d.rng.choice(
        ["constant", "edge", "reflect", "symmetric", "wrap", "maximum", "minimum", "mean", "median", "linear_ramp"]
    )
    if d.rng.random() < 0.5:
        return found
    if found in ("constant", "linear_ramp"):
        key = "constant_values" if found == "constant" else "end_values"
        d.kwargs[key] = d.rng.choice([0, 1, 3, (1, 2), 100])
    elif found not in ("edge", "reflect", "symmetric", "wrap"):
        d.kwargs["stat_length"] = d.rng.choice([None, 1, 2, (1, 2), 7])
    return found


@role
def indexing(d: Drawn) -> Any:
    return d.rng.choice(["xy", "ij", "ab"] if d.wrong() else ["xy", "ij"])


@role
def sorted_vector(d: Drawn) -> Any:
    return np.sort(d.new(d.size(1, 1), ["int8", "uint8", "int64", "float32", "float64"], special=False))


@role
def choices(d: Drawn) -> Any:
    return [d.new(next_to(d, d.x.shape), MIXED) for _ in range(3)]


@role
def few(d: Drawn) -> Any:
    """Numbers for `choose`: of one of three arrays."""
    found = d.new(d.size(), ["int64"], special=False) % 3 if not d.wrong() else d.new(d.size(), ["int64", "float64"])
    return np.asarray(found)


@role
def power(d: Drawn) -> Any:
    return d.rng.choice([0, 1, 2, 3, -1, 0.5] if d.wrong() else [0, 1, 2, 3])


@role
def norm_order(d: Drawn) -> Any:
    return d.rng.choice([None, 1, 2, -1, -2, np.inf, -np.inf, "fro", "nuc", 0, 3, "odd"])


@role
def matrix_order(d: Drawn) -> Any:
    return d.rng.choice([1, 2, -1, -2, np.inf, -np.inf, "fro", "nuc", 3])


@role
def vector_order(d: Drawn) -> Any:
    return d.rng.choice([1, 2, -1, 0, 0.5, 3, np.inf, -np.inf])


@role
def fft_norm(d: Drawn) -> Any:
    return d.rng.choice([None, "backward", "ortho", "forward", "odd"] if d.wrong() else [None, "backward", "ortho"])


@role
def fft_length(d: Drawn) -> Any:
    return d.rng.choice([1, 2, 5, 8, 0, -1] if d.wrong() else [1, 2, 5, 8])


@role
def fft_axes(d: Drawn) -> Any:
    n = d.x.ndim
    return d.rng.choice([(n,), (0, 0)]) if d.wrong() or not n else tuple(d.rng.sample(range(n), d.rng.randint(1, n)))


@role
def fft_lengths(d: Drawn) -> Any:
    n = len(d.kwargs.get("axes") or d.x.shape)
    return [d.rng.choice([1, 2, 5]) for _ in range(n + d.wrong())]


@role
def subscripts(d: Drawn) -> Any:
    return d.rng.choice(
        ["i", "i->", "ij->ji", "ij", "ii", "ii->i", "...i->...", "ij->j", "i->ii", "ijk->kij", "iij->j"]
    )


@role
def short(d: Drawn) -> Any:
    """A vector of few numbers, seldom something else."""
    return d.new(d.size() if d.wrong() else d.size(1, 1), [one for one in MIXED if one != "float16"], special=False)


@role
def points(d: Drawn) -> Any:
    """Ascending points."""
    found = d.new((d.rng.randint(0 if d.wrong() else 1, 6),), ["int8", "float64"], special=False)
    return np.cumsum(np.abs(found) % 9 + 1)


@role
def values_at(d: Drawn) -> Any:
    n = len(d.args[-1]) + d.wrong()
    return d.new((n,), ["int64", "float32", "float64", "complex128"], special=False)


@role
def period(d: Drawn) -> Any:
    return d.rng.choice([6.5, 7, 0] if d.wrong() else [6.5, 7])


@role
def convolution(d: Drawn) -> Any:
    return d.rng.choice(["full", "same", "valid", "odd"] if d.wrong() else ["full", "same", "valid"])


@role
def conditions(d: Drawn) -> Any:
    """Conditions for `select`, and as many choices follow."""
    size = d.size(0, 2)
    kinds = ["bool", "int8"] if d.wrong() else ["bool"]
    return [d.new(next_to(d, size), kinds) for _ in range(d.rng.randint(0 if d.wrong() else 1, 3))]


@role
def choices_of(d: Drawn) -> Any:
    size = np.shape(d.args[0][0]) if d.args[0] else ()
    n = len(d.args[0]) + d.wrong()
    return [d.rng.choice(ODD_NUMBERS[:4]) if d.rng.random() < 0.2 else d.new(next_to(d, size)) for _ in range(n)]


@role
def condition_of(d: Drawn) -> Any:
    """One condition, or several, of the shape of the array."""
    return [d.new((*d.x.shape, 2) if d.wrong() else d.x.shape, ["bool"]) for _ in range(d.rng.randint(1, 2))]


@role
def functions_of(d: Drawn) -> Any:
    n = len(d.args[1]) + d.rng.choice([0, 1, 2] if d.wrong() else [0, 1])
    return [d.rng.choice([np.negative, 3, 0, abs]) if d.x.dtype.kind != "b" else True for _ in range(n)]


@role
def line_function(d: Drawn) -> Any:
    return d.rng.choice([np.sum, np.sort, np.size, _ends])


def _ends(line: Any) -> Any:
    return line[[0, -1]] if len(line) else line


@role
def reduction(d: Drawn) -> Any:
    return d.rng.choice([np.sum, np.max])


@role
def some_axes(d: Drawn) -> Any:
    n = d.x.ndim
    if not n:
        return []
    return d.rng.choice([[0], [n - 1, 0] if n > 1 else [0], n - 1, [n] if d.wrong() else [-1]])


@role
def bytes_(d: Drawn) -> Any:
    return d.new(d.size(), ["uint8"] if not d.wrong() else INTS)


@role
def bits(d: Drawn) -> Any:
    return d.new(d.size(), ["bool", "int8", "uint8", "int64"] if not d.wrong() else MIXED)


@role
def bitorder(d: Drawn) -> Any:
    return d.rng.choice(["big", "little", "odd"] if d.wrong() else ["big", "little"])


@role
def bit_count(d: Drawn) -> Any:
    return d.rng.choice([0, 1, 5, 9, 40, -1, -3])


@role
def small_n(d: Drawn) -> Any:
    return d.rng.choice([0, 1, 2, 4])


@role
def coefficients(d: Drawn) -> Any:
    return d.new((d.rng.randint(1, 4),), ["int64", "float64", "complex128"], special=False)


@role
def keys(d: Drawn) -> Any:
    size = d.size(0, 2)
    return [d.new(d.size(1, 1) if d.wrong() else size, REAL) for _ in range(d.rng.randint(1, 3))]


@role
def vectors_of_3(d: Drawn) -> Any:
    n = 4 if d.wrong() else 3
    return d.new((*d.size(0, 2), n), [one for one in MIXED if one != "bool"], special=False)


@role
def same_vectors(d: Drawn) -> Any:
    return d.new((*next_to(d, d.x.shape[:-1]), 3), [one for one in MIXED if one != "bool"], special=False)


@role
def coordinates(d: Drawn) -> Any:
    size, n = d.size(0, 2), d.rng.randint(1, 3)
    return [np.asarray(d.new(size, ["int64"], special=False) % 3) for _ in range(n)]


@role
def dims_of(d: Drawn) -> Any:
    n = len(d.args[0]) + d.wrong()
    return tuple([d.rng.choice([2, 3, 4]) for _ in range(n)])


@role
def sides(d: Drawn) -> Any:
    return d.rng.choice(["fb", "f", "b", "x"] if d.wrong() else ["fb", "f", "b"])


@role
def zeros_at_ends(d: Drawn) -> Any:
    found = d.new(d.size(1, 2), REAL, special=False)
    lo, hi = d.rng.randint(0, 2), d.rng.randint(0, 2)
    return np.pad(found, [(lo, hi)] * found.ndim)


@role
def pieces(d: Drawn) -> Any:
    """Points of one to three coordinates."""
    size = (d.rng.choice([0, 1, 5, 30]), d.rng.randint(1, 3))
    return d.new(size if not d.wrong() else (*size, 2), REAL, special=False)


@role
def bins_each(d: Drawn) -> Any:
    one = d.rng.choice([1, 3, 0] if d.wrong() else [1, 3])
    n = d.x.shape[-1] if d.x.ndim else 1
    return d.rng.choice([one, [one] * n, [[0, 1, 2.5]] * n])


@role
def point_weights(d: Drawn) -> Any:
    return d.new((*d.x.shape[:1], *[2] * d.wrong()), REAL, special=False)


@role
def twin(d: Drawn) -> Any:
    return d.new(d.x.shape if not d.wrong() else (*d.x.shape, 2), REAL, special=False)


@role
def tall(d: Drawn) -> Any:
    n = d.rng.randint(1, 3)
    return np.eye(n + 3, n) * 3 + np.sign(d.new((n + 3, n), ["float64"], special=False))


@role
def tall_right(d: Drawn) -> Any:
    n = d.x.shape[0] + d.wrong()
    return d.new(d.rng.choice([(n,), (n, 2)]), ["float64"], special=False)


@role
def chain(d: Drawn) -> Any:
    """Matrices that can be multiplied one after another."""
    sizes = [d.rng.randint(1, 4) for _ in range(d.rng.randint(3, 5))]
    made = [d.new((a, b), ["int64", "float64"], special=False) for a, b in pairwise(sizes)]
    if d.rng.random() < 0.3:
        made[-1] = made[-1][:, 0]
    return made if not d.wrong() else made[:1]


@role
def triangle(d: Drawn) -> Any:
    return d.rng.choice(["L", "U", "u", *["X"] * d.wrong()])


@role
def cond_order(d: Drawn) -> Any:
    return d.rng.choice([None, 1, 2, -2, np.inf, "fro", *["nuc", "odd"] * d.wrong()])


def _given_axis(d: Drawn) -> Any:
    """Return the axis that is given, if there is one."""
    a = d.kwargs.get("axis")
    return a if isinstance(a, int) and -d.x.ndim <= a < d.x.ndim else None


@role
def weights_along(d: Drawn) -> Any:
    """Weights of each element, or of each along the axis."""
    a = _given_axis(d)
    size = d.x.shape if a is None or d.rng.random() < 0.5 else (d.x.shape[a],)
    return np.abs(d.new((*size, 2) if d.wrong() else size, REAL[1:], special=False))


@role
def other(d: Drawn) -> Any:
    """An array with as many axes, of another type and length."""
    size = list(d.x.shape)
    if size:
        a = _given_axis(d)
        size[a if a is not None else d.rng.randrange(len(size))] = d.rng.randint(0, 4)
    return d.new(tuple(size), special=False)


@role
def ends(d: Drawn) -> Any:
    """What precedes or follows an array: a number, or an array of another type."""
    if d.rng.random() < 0.3:
        return d.rng.choice([0, 1, 2.5])
    size = list(d.x.shape)
    if size:
        a = d.kwargs.get("axis", -1)
        size[a if isinstance(a, int) and -len(size) <= a < len(size) else -1] = d.rng.randint(0, 2)
    return d.new(tuple(size), special=False)


@role
def ends_of(d: Drawn) -> Any:
    return d.rng.choice([0.1, 1, 5, 2.5]) if d.rng.random() < 0.5 else d.new(d.size(0, 2), ["int64", "float32"])


@role
def number_of_axis(d: Drawn) -> Any:
    return d.rng.choice([0, -1])


@role
def floating_dtype(d: Drawn) -> Any:
    return d.rng.choice([None, "float32", "complex64"])


@role
def frequencies(d: Drawn) -> Any:
    n = d.x.shape[-1 if d.kwargs.get("rowvar", True) else 0] if d.x.ndim else 1
    return np.abs(d.new((n + d.wrong(),), ["int64", "int8", "uint8"], special=False)) % 4


@role
def importance(d: Drawn) -> Any:
    n = d.x.shape[-1 if d.kwargs.get("rowvar", True) else 0] if d.x.ndim else 1
    return np.abs(d.new((n + d.wrong(),), ["int64", "uint8", "float32", "float64"], special=False)) % 4


@role
def correction(d: Drawn) -> Any:
    d.kwargs.pop("ddof", None)
    return d.rng.choice([0, 1, 2])


@role
def index_mode(d: Drawn) -> Any:
    return d.rng.choice(["raise", "wrap", "clip"])


@role
def inserted(d: Drawn) -> Any:
    """A number, or an array of another type that is broadcast."""
    if d.rng.random() < 0.5:
        return d.rng.choice(ODD_NUMBERS)
    return d.new(d.rng.choice([(), (1,), d.x.shape[1:]]), special=False)


# ------------------------------------------------------------------------------------------------------------ table

CALLS = """
all any: x axis=axes? keepdims=flag? where=mask? out?
allclose isclose: x y rtol=fraction? atol=fraction? equal_nan=flag?
amax amin max min: real axis=axes? keepdims=flag? initial? where=mask? out?
angle: x deg=flag?
append: x other axis=axis_or_none?
arange: span span? step?
argmax argmin: real axis=axis_or_none? keepdims=flag? out?
argwhere flatnonzero nonzero: x
count_nonzero: x axis=axes? keepdims=flag?
around round round_: x decimals=places? out?
array asarray scalar tensor: x dtype=dtype?
array_equal: x same equal_nan=flag?
array_split split: x parts axis?
hsplit vsplit dsplit: x parts
ascontiguousarray asfortranarray: x dtype=dtype?
astype: x dtype
atleast_1d atleast_2d atleast_3d: *together
average: calm axis=axes? weights=weights_along? returned=flag? keepdims=flag?
bincount: whole weights? minlength=length?
block column_stack dstack hstack vstack: arrays
broadcast_arrays: *together
broadcast_to: x wider_shape
choose: few choices mode?
clip: real bound bound out?
compress: condition x axis=axis_or_none? out?
concat: arrays axis=axis_or_none? out?
concatenate: arrays axis=axis_or_none? out? dtype=numbers_dtype? casting?
stack: arrays axis? out?
copy: x order?
corrcoef: plane y=same? rowvar=flag?
cov: plane y=same? rowvar=flag? bias=flag? ddof=count? dtype=wider? fweights=frequencies? aweights=importance?
cumprod: signs axis=axis_or_none? dtype? out?
cumsum: x axis=axis_or_none? dtype? out?
cumulative_sum: x axis? dtype? include_initial=flag?
cumulative_prod: signs axis? dtype? include_initial=flag?
delete: x places_of axis=axis_or_none?
insert: x places_of inserted axis=axis_or_none?
diag diagflat: x k=count?
diagonal trace: x offset=count? axis1=axis? axis2=axis?
diff: calm n=count? axis? prepend=ends? append=ends?
digitize: real edges right=flag?
dot inner innerproduct vdot linalg.dot linalg.inner linalg.innerproduct linalg.vdot: calm factor
outer: x y
ediff1d: calm to_end=number? to_begin=number?
einsum: subscripts calm
empty_like zeros_like ones_like: x dtype=any_dtype? shape?
full_like: x odd_number dtype=any_dtype? shape?
expand_dims: x axes
extract: condition x
eye: length length? k=count? dtype=any_dtype?
identity: length dtype=any_dtype?
indices: shape dtype=numbers_dtype? sparse=flag?
fix: real out?
flip: x axis=axes?
fliplr flipud: x
gradient: calm axis=axes? edge_order?
kron: calm calm
rot90: x k=count? axes=plane_axes?
full: shape odd_number dtype=any_dtype?
zeros ones: shape dtype=any_dtype?
histogram: calm_real bins? range=limits? weights? density=flag?
histogram_bin_edges: calm_real bins? range=limits?
i0: floating
sinc: x
imag real isreal iscomplex: x
isin in1d: x y invert=flag?
linspace: ends_of span num=length? endpoint=flag? retstep=flag? dtype=floating_dtype? axis=number_of_axis?
logspace: ends_of fraction num=length? endpoint=flag? base=period? dtype=floating_dtype?
geomspace: fraction fraction num=length? endpoint=flag? dtype=floating_dtype?
matrix_transpose: x
mean: x axis=axes? dtype=wider? keepdims=flag? where=mask? out?
median: real axis=axes? keepdims=flag? out?
nanmedian: real axis=axes? keepdims=flag? out?
meshgrid: *vectors indexing? sparse=flag?
moveaxis: x axis axis
nan_to_num: x nan=number? posinf=number? neginf=number?
nanargmax nanargmin: real axis=axis_or_none? keepdims=flag? out?
nancumprod: signs axis=axis_or_none? dtype? out?
nancumsum: x axis=axis_or_none? dtype? out?
nanmax nanmin: real axis=axes? keepdims=flag? initial? where=mask? out?
nanmean: x axis=axes? dtype=wider? keepdims=flag? where=mask? out?
nansum: x axis=axes? dtype? keepdims=flag? initial? where=mask? out?
nanprod: signs axis=axes? dtype? keepdims=flag? initial? where=mask? out?
nanstd nanvar: x axis=axes? dtype=wider? ddof=count? correction? keepdims=flag? where=mask? out?
nanquantile quantile: real quantile axis=axes? keepdims=flag? method? out? weights=weights_along?
nanpercentile percentile: real percent axis=axes? keepdims=flag? method? out? weights=weights_along?
ndim shape: x
pad: x pad_width padding
argpartition partition: real kth axis=axis_or_none?
permute_dims transpose: x all_axes
prod product: signs axis=axes? dtype? keepdims=flag? initial? where=mask? out?
ptp: real axis=axes? keepdims=flag? out?
ravel: x order?
repeat: x repeats axis=axis_or_none?
reshape: x new_shape order?
roll: x shift axis=axes?
rollaxis: x axis axis?
searchsorted: sorted_vector real_y side?
setdiff1d union1d: x other
sort argsort: x axis=axis_or_none?
squeeze: x axis=axes?
std var: x axis=axes? dtype=wider? ddof=count? keepdims=flag? where=mask? out?
sum: x axis=axes? dtype? keepdims=flag? initial? where=mask? out?
swapaxes: x axis axis
take: x indices axis=axis_or_none? out? mode=index_mode?
take_along_axis: x along axis?
tensordot: calm factor axes=count?
tile: x repetitions
trapezoid trapz: calm x=twin? dx=number? axis?
tril triu: x k=count?
unique: calm axis=axis_or_none? return_index=flag? return_inverse=flag? return_counts=flag?
unique_all unique_counts unique_inverse unique_values: calm
unravel_index: ints shape order=order?
unstack: x axis?
where: condition y y
linalg.cholesky: positive upper=flag?
linalg.cross: x same axis?
linalg.det linalg.inv linalg.slogdet: positive
linalg.eigvalsh: positive UPLO=triangle?
linalg.svdvals: matrix
linalg.matrix_rank linalg.pinv: matrix rtol=fraction?
linalg.diagonal linalg.trace: planes offset=count?
linalg.matmul matmul: calm factor
linalg.vecdot vecdot: calm factor axis?
floor_divide: x y
expm1 tanh: x
modf frexp: real dtype?
divmod: real real_y dtype=wider?
linalg.matrix_norm: matrix ord=matrix_order? keepdims=flag?
linalg.matrix_power: square power
linalg.matrix_transpose: matrix
linalg.norm: calm ord=norm_order? axis=axes? keepdims=flag?
linalg.outer: vector vector
linalg.solve: positive right
linalg.tensordot: calm factor axes=count?
linalg.vector_norm: calm ord=vector_order? axis=axes? keepdims=flag?
fft.fft fft.ifft fft.rfft fft.irfft fft.hfft fft.ihfft: signal n=fft_length? axis? norm=fft_norm?
fft.fftn fft.ifftn fft.rfftn fft.irfftn: signal axes=fft_axes? s=fft_lengths? norm=fft_norm?
fft.fft2 fft.ifft2 fft.rfft2 fft.irfft2: signal axes=fft_axes? s=fft_lengths? norm=fft_norm?
fft.fftshift fft.ifftshift: x axes?
fft.fftfreq fft.rfftfreq: length d=fraction?
convolve correlate: short short mode=convolution?
interp: real points values_at left=number? right=number? period?
unwrap: calm_real discont=number? axis? period?
hanning hamming blackman bartlett: length
kaiser: length fraction
select: conditions choices_of default=number?
piecewise: calm condition_of functions_of
apply_along_axis: line_function axis calm
apply_over_axes: reduction calm some_axes
packbits: bits axis=axis_or_none? bitorder?
unpackbits: bytes axis=axis_or_none? count=bit_count? bitorder?
resize: x shape
trim_zeros: zeros_at_ends trim=sides?
tri: small_n M=small_n? k=count? dtype=any_dtype?
tril_indices triu_indices: small_n k=count? m=small_n?
tril_indices_from triu_indices_from: planes k=count?
diag_indices: small_n ndim=small_n?
diag_indices_from: planes
ix_: *vectors
ravel_multi_index: coordinates dims_of mode? order=order?
lexsort: keys axis?
cross: vectors_of_3 same_vectors axis=axis?
intersect1d: x other return_indices=flag?
setxor1d: x other
histogramdd: pieces bins=bins_each? density=flag? weights=point_weights?
histogram2d: calm_real twin bins? density=flag? weights=point_weights?
poly roots: coefficients
polyadd polysub polymul polyval: coefficients coefficients
polydiv: coefficients coefficients
polyder: coefficients m=small_n?
polyint: coefficients m=small_n? k=number?
vander: vector N=small_n? increasing=flag?
array_equiv: x same
iscomplexobj isrealobj: x
isposinf isneginf: real out?
size: x axis?
real_if_close: x tol=number?
sort_complex: x
asarray_chkfinite: x
require: x dtype=dtype?
row_stack: arrays
asanyarray: x dtype=dtype?
matvec: matrix right
vecmat: vector matrix
linalg.cond: square p=cond_order?
linalg.lstsq: tall tall_right rcond=fraction?
linalg.multi_dot: chain
linalg.tensorinv: square ind=small_n?
linalg.tensorsolve: square right
"""


def table(rows: str = CALLS) -> dict[str, list[str]]:
    """Return the roles of the arguments of each function."""
    made: dict[str, list[str]] = {}
    for row in rows.strip().splitlines():
        names, _, words = row.partition(": ")
        made.update({name: words.split() for name in names.split()})
    return made


UFUNCS = {1: "x out? dtype? where=mask?", 2: "x y out? dtype=wider? where=mask?"}
"""The roles of the arguments of all ufuncs, by their number of inputs."""


def draw(roles: list[str], rng: random.Random) -> Drawn:
    """Draw the arguments of a call."""
    with np.errstate(all="ignore"):  # NaN among complex numbers
        return _drawn(roles, rng)


def _drawn(roles: list[str], rng: random.Random) -> Drawn:
    """Draw the array, then the keywords, then the rest: what is drawn for `indices` depends on `axis`."""
    d = Drawn(rng)
    plain = [word for word in roles if not word.endswith("?")]
    words = [word[:-1] for word in roles if word.endswith("?") and rng.random() < GIVEN]
    for at, word in enumerate(plain):
        if at == 1:
            _keywords(d, words)
        if word.startswith("*"):
            d.args.extend(ROLES[word[1:]](d))
        else:
            d.args.append(ROLES[word](d))
    if len(plain) < 2:
        _keywords(d, words)
    return d


def _keywords(d: Drawn, words: list[str]) -> None:
    for word in words:
        key, _, kind = word.partition("=")
        if word == "out":
            d.out = True
        else:
            d.kwargs[key] = ROLES[kind or key](d)
