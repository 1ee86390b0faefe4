"""How each function of `weft.tensor.random` is called: its parameters, and where the numbers that it draws are."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.properties.tensors.drawing import array, shape

WRONG = 0.3
"""How often one argument does not fit."""
VALUES: dict[str, tuple[list[Any], list[Any]]] = {
    "positive": ([0.5, 1, 2.5, 7], [0, -1, -0.5, np.nan]),
    "nonnegative": ([0, 1, 2.5], [-1, -0.5, np.nan]),
    "real": ([-1, 0, 2.5, 1e3], [np.nan, np.inf]),
    "probability": ([0.25, 0.5, 1, 1.0], [-0.1, 1.5, np.nan, 2]),
    "below_one": ([0, 0.25, 0.5], [-0.1, 1, 1.5, np.nan]),
    "above_one": ([1.5, 2.5, 4], [1, 0, -1, np.nan]),
    "count": ([0, 1, 5, 10], [-1, 2.5, np.nan, 2**63, -(2**70)]),
    "left": ([-1, 0], [np.nan, 5]),
    "middle": ([1, 1.5], [np.nan, -5]),
    "right": ([2, 3.5], [np.nan, -5, 1e308]),
}
"""Numbers that parameters of a kind may be, and wrong ones."""
ODD = ["a", None, 1j, 2**1100]

CALLS = """
beta: a=positive b=positive
binomial: n=count p=probability
chisquare: df=positive
exponential: scale=nonnegative?
f: dfnum=positive dfden=positive
gamma: shape=nonnegative scale=nonnegative?
geometric: p=probability
gumbel laplace logistic normal: loc=real? scale=nonnegative?
hypergeometric: ngood=count nbad=count nsample=count
lognormal: mean=real? sigma=nonnegative?
logseries: p=below_one
negative_binomial: n=positive p=probability
noncentral_chisquare: df=positive nonc=nonnegative
noncentral_f: dfnum=positive dfden=positive nonc=nonnegative
pareto power: a=positive
poisson: lam=nonnegative?
standard_cauchy:
rayleigh: scale=nonnegative?
standard_gamma: shape=nonnegative
standard_t: df=positive
triangular: left=left mode=middle right=right
uniform: low=left? high=right?
vonmises: mu=real kappa=nonnegative
wald: mean=positive scale=positive
weibull: a=nonnegative
zipf: a=above_one
"""
"""The parameters of each distribution: names and kinds; `?` marks those with defaults."""


def table() -> dict[str, list[tuple[str, str, bool]]]:
    """Return the names, kinds and defaults of the parameters of each distribution."""
    made: dict[str, list[tuple[str, str, bool]]] = {}
    for row in CALLS.strip().splitlines():
        names, _, words = row.partition(":")
        found = [(*word.rstrip("?").partition("=")[::2], word[-1] == "?") for word in words.split()]
        made.update(dict.fromkeys(names.split(), found))
    return made


def drawn(parameters: list[tuple[str, str, bool]], rng: random.Random) -> tuple[list[Any], dict[str, Any]]:
    """Draw the arguments of a call: some parameters by name, as numbers or arrays, and a size of any form.

    At most one of them is wrong, since which error of several comes first is not defined.
    """
    size = shape(rng, 0, 3, 5)
    args: list[Any] = []
    named: dict[str, Any] = {}
    fault = rng.choice(["size", *[name for name, *_ in parameters]]) if rng.random() < WRONG else ""
    by_name = False
    for name, kind, has_default in parameters:
        if has_default and rng.random() < 0.3:
            by_name = True
            continue
        by_name = by_name or rng.random() < 0.2
        value = parameter(kind, size, rng, name == fault)
        if by_name:
            named[name] = value
        else:
            args.append(value)
    if fault == "size":
        named["size"] = rng.choice(WRONG_SIZES)
    elif rng.random() < 0.6:
        named["size"] = size_form(size, rng)
    return args, named


def parameter(kind: str, size: tuple[int, ...], rng: random.Random, wrong: bool) -> Any:
    """Draw a number of a kind, or an array of them; a wrong one is of a wrong type, shape or value."""
    values, unfit = VALUES[kind]
    if wrong and rng.random() < 0.3:
        return rng.choice(ODD)
    one = rng.choice(unfit if wrong else values)
    form = rng.random()
    if form < 0.45:
        return one
    dtype = "int64" if kind == "count" and isinstance(one, int) and abs(one) < 2**63 else "float64"
    if form < 0.6:
        return np.array(one, dtype)[()] if form < 0.55 else np.array(one, dtype)
    own = size[rng.randint(0, len(size)) :] if rng.random() < 0.5 else size
    own = tuple([1 if rng.random() < 0.2 else n for n in own])
    if wrong and rng.random() < 0.2:
        own = (*own, 7)
    made = np.array([rng.choice(values) for _ in range(int(np.prod(own)))], dtype).reshape(own)
    if made.size and wrong:
        made.flat[rng.randrange(made.size)] = one
    if not wrong and np.all(made == np.trunc(made)) and np.all(np.abs(made) < 100):
        made = made.astype(rng.choice(["int64", "int8"] if kind == "count" else ["int64", "int8", "float32"]))
    return made.tolist() if rng.random() < 0.1 and made.size and kind != "count" else made


WRONG_SIZES = [-1, 2.5, "3", (2, -1), (2.5,), np.float64(3), 1j, (7, 7, 7)]


def size_form(size: tuple[int, ...], rng: random.Random) -> Any:
    """Draw a form of a size."""
    forms: list[Any] = [None, size, list(size), (2, *size), np.array(size, np.int64), 0, (0,), ()]
    return rng.choice([*forms, size[0], np.int64(size[0])] if len(size) == 1 else forms)


def integers(rng: random.Random) -> Any:
    size = shape(rng, 0, 2, 4)
    low: Any = rng.choice([0, -3, 5, np.array([0, 1, 2]), np.array([[-4], [3]]), np.array(2), [0, 3]])
    high: Any = rng.choice([6, 300, np.array([7, 9, 11]), np.array(9), [8, 9, 10]])
    if rng.random() < 0.2:
        low, high = rng.choice(
            [(3, 3), (5, 2), (0, 2**64), (np.array([0, 9]), 5), (0.5, 3), ("a", 3), (-(2**63), 2**63)]
        )
    args = [low, high] if rng.random() < 0.8 else [high]
    kwargs: dict[str, Any] = {}
    if rng.random() < 0.5:
        kwargs["dtype"] = rng.choice(["int64", "int8", "uint8", np.uint16, "uint64", "bool", "float64", "int32"])
    if rng.random() < 0.4:
        kwargs["endpoint"] = rng.random() < 0.6
    if rng.random() < 0.4:
        kwargs["size"] = size_form(size, rng)
    return args, kwargs


def randint(rng: random.Random) -> Any:
    args, kwargs = integers(rng)
    kwargs.pop("endpoint", None)
    return args, kwargs


def choice(rng: random.Random) -> Any:
    a: Any = rng.choice(
        [5, 1, 0, -1, 2.5, np.arange(4), np.eye(3), np.zeros((2, 0)), np.array(3), [3, 1, 2], np.int8(4)]
    )
    kwargs: dict[str, Any] = {}
    if rng.random() < 0.6:
        kwargs["size"] = size_form(shape(rng, 0, 2, 3), rng)
    if rng.random() < 0.4:
        kwargs["replace"] = rng.random() < 0.5
    if rng.random() < 0.4:
        n = len(a) if np.ndim(a) else max(int(a), 0)
        kwargs["p"] = rng.choice([[1 / n] * n if n else [], [0.5, 0.5], [1.0, *[0.0] * (n - 1)], [2.0, -1.0]])
        kwargs["p"] = np.asarray(kwargs["p"]) if rng.random() < 0.5 else kwargs["p"]
    if rng.random() < 0.3:
        kwargs["axis"] = rng.choice([0, -1, 1, 2])
    return [a], kwargs


def _array(rng: random.Random) -> Any:
    return array(rng, shape(rng, 0, 3, 4), special=False)


def permutation(rng: random.Random) -> Any:
    x: Any = _array(rng) if rng.random() < 0.8 else rng.choice([5, 0, np.int8(3), 2.5, -1, [1, 2, 3], "a"])
    return [x], {"axis": rng.choice([0, -1, 1, 3])} if rng.random() < 0.4 else {}


def permuted(rng: random.Random) -> Any:
    return [_array(rng)], {"axis": rng.choice([0, -1, 1, None, 3])} if rng.random() < 0.6 else {}


def multinomial(rng: random.Random) -> Any:
    n: Any = rng.choice([0, 1, 9, -1, 2.5, "a"] if rng.random() < WRONG else [0, 1, 9, np.int64(4)])
    p: Any = rng.choice(
        [[0.5, 0.6], [-0.1, 1.1], [], 0.5, [np.nan, 1]] if rng.random() < WRONG else [[0.2, 0.8], [1.0]]
    )
    return [n, np.asarray(p) if rng.random() < 0.5 else p], _sized(rng)


def dirichlet(rng: random.Random) -> Any:
    alpha: Any = rng.choice([[-1.0, 2], [], 0.5, [np.nan, 1]] if rng.random() < WRONG else [[1, 2, 3], [0.5], [0.0, 1]])
    return [np.asarray(alpha) if rng.random() < 0.5 else alpha], _sized(rng)


def multivariate_normal(rng: random.Random) -> Any:
    mean: Any = rng.choice([[0.0, 1], [1, 2], np.array([0.5, -3])])
    cov: Any = rng.choice([np.eye(2), [[2, 1], [1, 2]], np.zeros((2, 2))])
    if rng.random() < WRONG:
        mean, cov = rng.choice([(mean, np.eye(3)), (0.5, cov), (mean, [1, 2]), (mean, [[1, 5], [5, 1]])])
    check = {"check_valid": rng.choice(["warn", "raise", "ignore", "odd"])} if rng.random() < 0.4 else {}
    return [mean, cov], {**_sized(rng), **check}


def _sized(rng: random.Random) -> dict[str, Any]:
    return {"size": size_form(shape(rng, 0, 2, 3), rng)} if rng.random() < 0.7 else {}


def streamed(rng: random.Random) -> Any:
    size = rng.choice(WRONG_SIZES) if rng.random() < WRONG else size_form(shape(rng, 0, 2, 3), rng)
    return ([size] if rng.random() < 0.5 else []), {
        "dtype": rng.choice(["f4", "f8", "i4"])
    } if rng.random() < 0.4 else {}


def lengths(rng: random.Random) -> Any:
    return [
        rng.choice([0, 1, 3, np.int64(2), -1, 2.5, "a"] if rng.random() < WRONG else [0, 1, 3])
        for _ in range(rng.randint(0, 3))
    ], {}


def length(rng: random.Random) -> Any:
    return [rng.choice([0, 1, 9, np.int64(3), -1, 2.5, "a"])], {}


OTHERS: dict[str, Callable[[random.Random], Any]] = {
    "bytes": length,
    "choice": choice,
    "dirichlet": dirichlet,
    "integers": integers,
    "multinomial": multinomial,
    "multivariate_normal": multivariate_normal,
    "permutation": permutation,
    "permuted": permuted,
    "rand": lengths,
    "randint": randint,
    "randn": lengths,
    "random": streamed,
    "random_sample": lambda rng: ([], _sized(rng)),
    "ranf": lambda rng: ([], _sized(rng)),
    "sample": lambda rng: ([], _sized(rng)),
    "standard_exponential": streamed,
    "standard_normal": streamed,
}
"""How the arguments of functions with other arguments than parameters and a size are drawn."""
OF_STATE = {
    "rand": "rand",
    "randint": "randint",
    "randn": "randn",
    "random_sample": "random_sample",
    "ranf": "random_sample",
    "sample": "random_sample",
}
"""Functions that only NumPy's older generator has, under which name."""

INF = np.inf
BOUNDS: dict[str, Callable[..., tuple[Any, Any]]] = {
    "beta": lambda a, b: (0, 1),
    "binomial": lambda n, p: (0, n),
    "geometric": lambda p: (1, INF),
    "gumbel": lambda *_, **__: (-INF, INF),
    "hypergeometric": lambda ngood, nbad, nsample: (
        np.maximum(0, nsample - nbad),
        np.minimum(ngood, nsample),
    ),
    "laplace": lambda *_, **__: (-INF, INF),
    "logistic": lambda *_, **__: (-INF, INF),
    "logseries": lambda p: (1, INF),
    "normal": lambda *_, **__: (-INF, INF),
    "power": lambda a: (0, 1),
    "random": lambda: (0, 1),
    "standard_cauchy": lambda: (-INF, INF),
    "standard_normal": lambda: (-INF, INF),
    "standard_t": lambda df: (-INF, INF),
    "triangular": lambda left, mode, right: (left, right),
    "uniform": lambda low=0.0, high=1.0: (np.asarray(low, float), np.asarray(high, float)),
    "vonmises": lambda mu, kappa: (-np.pi, np.pi),
    "zipf": lambda a: (1, INF),
}
"""The least and the largest number of a distribution, of its parameters; of the others they are 0 and infinity."""
