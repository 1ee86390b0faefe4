"""Random arrays: generators with a seed, and NumPy's older functions of the same names.

The numbers depend on the seed, on the earlier calls, and on chunks named by the user (by `chunk_size`, or
that of the session); not on workers, memory, backend or order. They are not those that `numpy.random` gives for the
same seed.
"""

from __future__ import annotations

import inspect
import operator
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.frontends.tensors import random_streams
from weft.frontends.tensors.arrays import chunking
from weft.frontends.tensors.arrays.array import Tensor, apply
from weft.frontends.tensors.arrays.conversion import as_node
from weft.frontends.tensors.arrays.dtypes import FLOAT, INT
from weft.frontends.tensors.arrays.registry import expose, with_chunks
from weft.frontends.tensors.arrays.selection import take_along_axis
from weft.frontends.tensors.arrays.sorting import argsort
from weft.frontends.tensors.blocks import fitted
from weft.frontends.tensors.chunks import Cut, Grid, blocks
from weft.frontends.tensors.nodes import ArrayNode
from weft.frontends.tensors.reductions import axis_of

if TYPE_CHECKING:
    import builtins

    from weft.frontends.tensors.types import ChunkSize, DType, Size


def _size(size: Size) -> tuple[int, ...]:
    several = isinstance(size, Sequence | np.ndarray) and np.ndim(size)
    given: Any = () if size is None else tuple(size) if several else (size,)  # type: ignore[arg-type]
    if not all(hasattr(n, "__index__") for n in given):
        raise TypeError(f"size is {size!r}: give whole numbers")
    if any(n < 0 for n in given):
        raise ValueError(f"size is {size!r}: give whole numbers that are not negative")
    return tuple([int(n) for n in given])


def _parameter(value: Any) -> Any:
    """Return a parameter of a distribution as a number or a node."""
    if isinstance(value, Tensor | np.ndarray | list | tuple):
        node = as_node(value)
        return node if node.grid else node.kwargs.get("value", node)
    return value


_NEEDED = object()
_CHILD = 2**63
"""What the keys of spawned generators begin with, which no number of a call reaches."""
_STANDARD = {"uniform": "random", "normal": "standard_normal", "exponential": "standard_exponential"}
"""The distributions without parameters whose numbers are shifted and scaled."""


def _distribution(method: str, *, result: DType = FLOAT, **parameters: Any) -> Callable[..., Tensor]:
    """Return a method that draws from a distribution of NumPy; `_NEEDED` marks a parameter without default."""
    names = tuple(parameters)

    def draw(self: Any, *args: Any, size: Size = None, chunk_size: ChunkSize = None, **named: Any) -> Tensor:
        if len(args) > len(names):
            *args_list, size = args
            args = tuple(args_list)
        given = {**parameters, **dict(zip(names, args, strict=False)), **named}
        lacking = [name for name, value in given.items() if value is _NEEDED]
        if len(args) > len(names) or len(given) > len(names) or lacking or named.keys() & set(names[: len(args)]):
            raise TypeError(f"{method} takes {', '.join((*names, 'size', 'chunk_size'))}, each of them once")
        made: Tensor = self._drawn(method, list(given.values()), size, result, chunk_size)
        return made

    draw.__name__ = draw.__qualname__ = method
    draw.__doc__ = f"Return numbers of the distribution of `numpy.random.Generator.{method}`, with its parameters."
    return _as_in_mars(draw)


def _as_in_mars(draw: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Let a method of a generator take the arguments of Mars: `dtype`, `density`, and refused GPUs."""
    has_dtype = "dtype" in inspect.signature(draw).parameters

    @wraps(draw)
    def drawing(*args: Any, gpu: bool | None = None, density: float | None = None, **kwargs: Any) -> Tensor:
        if gpu:
            raise TypeError(f"{draw.__name__}: arrays are in memory; leave `gpu` out")
        if density is not None:
            return _sparse(draw.__name__, *args, density=density, **kwargs)  # type: ignore[no-any-return]
        dtype = None if has_dtype else kwargs.pop("dtype", None)
        if has_dtype and kwargs.get("dtype", FLOAT) is None:
            del kwargs["dtype"]
        made = draw(*args, **kwargs)
        return made if dtype is None else made.astype(dtype)

    return drawing


_SPARSE = {
    "rand": "random", "random": "random", "random_sample": "random", "sample": "random", "ranf": "random",
    "randn": "standard_normal", "standard_normal": "standard_normal",
}  # fmt: skip
"""Functions whose numbers may be in a share of the elements alone, and the methods that draw them."""


def _sparse(
    name: str,
    self: Generator,
    *size: Any,
    density: float,
    dtype: Any = FLOAT,
    chunk_size: ChunkSize = None,
    **given: Any,
) -> Any:
    """Return a sparse matrix of random numbers. TypeError: of this function there is none."""
    if name not in _SPARSE:
        raise TypeError(f"{name}: density= is taken by {', '.join(sorted(_SPARSE))}; others are dense: x.tosparse()")
    from weft.frontends.tensors.arrays.sparse import drawn

    shape = size if name in ("rand", "randn") else _size(given.pop("size", *size[:1] or (None,)))
    if given or (name not in ("rand", "randn") and len(size) > 1):
        raise TypeError(f"{name}: density= goes with size, dtype and chunk_size alone")
    return drawn(_SPARSE[name], shape, self._seed(), FLOAT if dtype is None else dtype, density, chunk_size)


@with_chunks
class Generator:
    """Makes random arrays from a seed: as `numpy.random.Generator`, with `chunk_size`."""

    def __init__(self, seed: Any = None) -> None:
        self._entropy = _entropy(seed)
        self._calls = self._children = 0
        self._lock = threading.Lock()

    def __getstate__(self) -> tuple[tuple[int, ...], int, int]:
        with self._lock:
            return self._entropy, self._calls, self._children

    def __setstate__(self, state: tuple[tuple[int, ...], int, int]) -> None:
        self._entropy, self._calls, self._children = state
        self._lock = threading.Lock()

    def _seed(self) -> random_streams.Seed:
        with self._lock:
            self._calls += 1
            return (*self._entropy, self._calls - 1)

    def _cut(self, shape: tuple[int, ...], dtype: DType, chunk_size: ChunkSize) -> tuple[Grid, random_streams.Block]:
        """Return the chunks, and the blocks in them unless the user names chunks."""
        grid = chunking.cut(shape, dtype.itemsize, chunk_size)
        named = chunking.chunking().chunk_size if chunk_size is None else chunk_size
        if not (named is None or (isinstance(named, str) and named == "auto")):
            return grid, None
        block = blocks(shape)
        return tuple([cut.holding(length) for cut, length in zip(grid, block, strict=True)]), block

    def _streamed(self, method: str, size: Size, dtype: Any, chunk_size: ChunkSize) -> Tensor:
        kind = np.dtype(dtype)
        if kind not in (np.float64, np.float32):
            raise TypeError(f"Unsupported dtype {kind!r} for {method}")
        grid, block = self._cut(_size(size), kind, chunk_size)
        return Tensor(random_streams.streamed(method, grid, self._seed(), kind, block))

    def _drawn(
        self,
        method: str,
        args: Sequence[Any],
        size: Size,
        dtype: Any,
        chunk_size: ChunkSize,
        more: Mapping[str, Any] | None = None,
    ) -> Tensor:
        given = [_parameter(one) for one in args]
        more = more or {}
        kind = np.dtype(dtype)
        with np.errstate(all="ignore"):  # NumPy checks the parameters here
            tried = [np.zeros(1, one.dtype) if isinstance(one, ArrayNode) else one for one in given]
            if not any(isinstance(one, ArrayNode) for one in given):
                getattr(np.random.default_rng(0), method)(*tried, size=0, **more)
        shapes = [one.shape for one in given if isinstance(one, ArrayNode)]
        shape = np.broadcast_shapes(*shapes) if size is None else _size(size)
        if shapes and np.broadcast_shapes(shape, *shapes) != shape:
            raise ValueError(f"parameters of shapes {shapes} do not go together with size {shape}")
        grid, block = self._cut(shape, kind, chunk_size)
        given = [fitted(one, grid) if isinstance(one, ArrayNode) else one for one in given]
        return Tensor(random_streams.drawn(method, given, grid, self._seed(), kind, more, block))

    # ------------------------------------------------------------------------------------------------------ simple

    @_as_in_mars
    def random(self, size: Size = None, dtype: Any = FLOAT, *, chunk_size: ChunkSize = None) -> Tensor:
        """Return numbers evenly spread over [0, 1)."""
        return self._streamed("random", size, dtype, chunk_size)

    @_as_in_mars
    def standard_normal(self, size: Size = None, dtype: Any = FLOAT, *, chunk_size: ChunkSize = None) -> Tensor:
        """Return normal numbers of mean 0 and variance 1."""
        return self._streamed("standard_normal", size, dtype, chunk_size)

    @_as_in_mars
    def standard_exponential(self, size: Size = None, dtype: Any = FLOAT, *, chunk_size: ChunkSize = None) -> Tensor:
        """Return exponential numbers of mean 1."""
        return self._streamed("standard_exponential", size, dtype, chunk_size)

    @_as_in_mars
    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Size = None, *, chunk_size: ChunkSize = None) -> Tensor:
        """Return numbers evenly spread over [low, high)."""
        return self._scaled("uniform", (low, high), size, chunk_size)

    @_as_in_mars
    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Size = None, *, chunk_size: ChunkSize = None) -> Tensor:
        """Return normal numbers of mean `loc` and standard deviation `scale`."""
        return self._scaled("normal", (loc, scale), size, chunk_size)

    @_as_in_mars
    def exponential(self, scale: Any = 1.0, size: Size = None, *, chunk_size: ChunkSize = None) -> Tensor:
        """Return exponential numbers of mean `scale`."""
        return self._scaled("exponential", (scale,), size, chunk_size)

    def _scaled(self, method: str, args: Sequence[Any], size: Size, chunk_size: ChunkSize) -> Tensor:
        """Return numbers of a distribution; of parameters without axes, those of a standard one, shifted and scaled."""
        given = [_parameter(one) for one in args]
        if any(isinstance(one, ArrayNode) for one in given):
            return self._drawn(method, args, size, FLOAT, chunk_size)
        getattr(np.random.default_rng(0), method)(*given, size=0)  # NumPy checks the parameters
        low, *high = map(float, given)
        shift, scale = (low, high[0]) if high else (0.0, low)
        if method == "uniform":
            scale -= shift
        made = self._streamed(_STANDARD[method], size, FLOAT, chunk_size)
        if scale != 1:
            made = apply(np.multiply, made, scale)
        return made if shift == 0 else apply(np.add, made, shift)

    @_as_in_mars
    def integers(
        self,
        low: Any,
        high: Any = None,
        size: Size = None,
        dtype: Any = INT,
        endpoint: bool = False,
        *,
        chunk_size: ChunkSize = None,
    ) -> Tensor:
        """Return whole numbers from `low` up to, not including, `high`; below `low` from 0 if `high` is left out."""
        if high is None:
            low, high = 0, low
        kind = np.dtype(dtype)
        return self._drawn("integers", (low, high), size, kind, chunk_size, {"dtype": kind, "endpoint": endpoint})

    @_as_in_mars
    def choice(
        self,
        a: Any,
        size: Size = None,
        replace: bool = True,
        p: Any = None,
        axis: int = 0,
        *,
        chunk_size: ChunkSize = None,
    ) -> Tensor:
        """Return elements of `a` along an axis (of `range(a)` for a number), each drawn by itself or, without
        `replace`, once.
        """
        values, n, axis = _population(operator.index(a) if _is_whole(a) else a, axis)
        shape = _size(size)
        weights = None if p is None else tuple(np.asarray(p.fetch() if isinstance(p, Tensor) else p, FLOAT).tolist())
        chunks = chunk_size if replace or not shape else tuple([max(length, 1) for length in shape])
        more: dict[str, Any] = {"replace": replace}
        if weights is not None:
            more["p"] = weights
        at = self._drawn("choice", (n,), shape, INT, chunks, more)
        return at if values is None else values[(*[slice(None)] * axis, at)]

    def permutation(self, x: Any, axis: int = 0, *, chunk_size: ChunkSize = None) -> Tensor:
        """Return the elements of an array (of `range(x)` for a number) along an axis, in random order."""
        values, n, axis = _population(x, axis)
        n = max(n, 0)
        at = self._drawn("choice", (n,), (n,), INT, (max(n, 1),), {"replace": False})
        made = at if values is None else values[(*[slice(None)] * axis, at)]
        return made if chunk_size is None else made.rechunk(chunk_size)

    def permuted(self, x: Any, axis: int | None = None) -> Tensor:
        """Return an array with its elements in random order: all of them, or each row along an axis by itself."""
        values = Tensor(as_node(x))
        if axis is None:
            return Tensor(self.permutation(values.reshape(-1)).reshape(values.shape).node)
        return take_along_axis(values, argsort(self.random(values.shape), axis=axis), axis=axis)

    def shuffle(self, x: Tensor, axis: int = 0) -> None:
        """Shuffle the elements of an array along an axis. TypeError: it is not a Weft array."""
        if not isinstance(x, Tensor):
            raise TypeError(f"x is {type(x).__name__}, which cannot be shuffled in place: use permutation(x)")
        x._set(self.permutation(x, axis)._node)

    def spawn(self, n_children: int) -> list[Generator]:
        """Return generators of numbers that are independent of each other and of those of this one, which stay.

        ValueError: `n_children` is negative.
        """
        if (n := operator.index(n_children)) < 0:
            raise ValueError("n_children must be non-negative")
        with self._lock:
            first = self._children
            self._children += n
        keys = [(_CHILD, number) for number in range(first, first + n)]
        return [type(self)(np.random.SeedSequence(self._entropy, spawn_key=key)) for key in keys]

    def bytes(self, length: int) -> builtins.bytes:
        """Return random bytes."""
        *entropy, call = self._seed()
        return np.random.Generator(np.random.SFC64(np.random.SeedSequence(entropy, spawn_key=(call,)))).bytes(length)

    # ----------------------------------------------------------------------------------------------- distributions

    beta = _distribution("beta", a=_NEEDED, b=_NEEDED)
    binomial = _distribution("binomial", n=_NEEDED, p=_NEEDED, result=INT)
    chisquare = _distribution("chisquare", df=_NEEDED)
    f = _distribution("f", dfnum=_NEEDED, dfden=_NEEDED)
    gamma = _distribution("gamma", shape=_NEEDED, scale=1.0)
    geometric = _distribution("geometric", p=_NEEDED, result=INT)
    gumbel = _distribution("gumbel", loc=0.0, scale=1.0)
    hypergeometric = _distribution("hypergeometric", ngood=_NEEDED, nbad=_NEEDED, nsample=_NEEDED, result=INT)
    laplace = _distribution("laplace", loc=0.0, scale=1.0)
    logistic = _distribution("logistic", loc=0.0, scale=1.0)
    lognormal = _distribution("lognormal", mean=0.0, sigma=1.0)
    logseries = _distribution("logseries", p=_NEEDED, result=INT)
    negative_binomial = _distribution("negative_binomial", n=_NEEDED, p=_NEEDED, result=INT)
    noncentral_chisquare = _distribution("noncentral_chisquare", df=_NEEDED, nonc=_NEEDED)
    noncentral_f = _distribution("noncentral_f", dfnum=_NEEDED, dfden=_NEEDED, nonc=_NEEDED)
    pareto = _distribution("pareto", a=_NEEDED)
    poisson = _distribution("poisson", lam=1.0, result=INT)
    power = _distribution("power", a=_NEEDED)
    rayleigh = _distribution("rayleigh", scale=1.0)
    standard_cauchy = _distribution("standard_cauchy")
    standard_gamma = _distribution("standard_gamma", shape=_NEEDED)
    standard_t = _distribution("standard_t", df=_NEEDED)
    triangular = _distribution("triangular", left=_NEEDED, mode=_NEEDED, right=_NEEDED)
    vonmises = _distribution("vonmises", mu=_NEEDED, kappa=_NEEDED)
    wald = _distribution("wald", mean=_NEEDED, scale=_NEEDED)
    weibull = _distribution("weibull", a=_NEEDED)
    zipf = _distribution("zipf", a=_NEEDED, result=INT)

    # ----------------------------------------------------------------------------------------------------- vectors

    @_as_in_mars
    def multinomial(self, n: int, pvals: Any, size: Size = None, *, chunk_size: ChunkSize = None) -> Tensor:
        """Return how often each of several outcomes came in `n` draws; outcomes are along the last axis."""
        if np.ndim(n) or np.ndim(_numbers(pvals)) > 1:
            raise ValueError("n is one number and pvals one vector: call multinomial for each of several")
        return self._vectors("multinomial", (int(n), _numbers(pvals)), size, INT, chunk_size)

    @_as_in_mars
    def dirichlet(self, alpha: Any, size: Size = None, *, chunk_size: ChunkSize = None) -> Tensor:
        """Return vectors of shares that add up to 1."""
        return self._vectors("dirichlet", (_numbers(alpha),), size, FLOAT, chunk_size)

    @_as_in_mars
    def multivariate_normal(
        self,
        mean: Any,
        cov: Any,
        size: Size = None,
        check_valid: str = "warn",
        tol: float = 1e-8,
        *,
        chunk_size: ChunkSize = None,
    ) -> Tensor:
        """Return normal vectors with a mean and a covariance, which is checked here as NumPy does."""
        middle = _numbers(mean)
        np.random.default_rng(0).multivariate_normal(middle, _values(cov), 0, check_valid=check_valid, tol=tol)  # type: ignore[arg-type]
        spread = tuple([tuple(row) for row in np.asarray(_values(cov), FLOAT).tolist()])
        return self._vectors("multivariate_normal", (middle, spread), size, FLOAT, chunk_size)

    def _vectors(self, method: str, args: Sequence[Any], size: Size, dtype: DType, chunk_size: ChunkSize) -> Tensor:
        """Return draws that are as long as the last parameter, which NumPy checks."""
        n = getattr(np.random.default_rng(0), method)(*args, size=0).shape[-1]
        grid, block = self._cut(_size(size), dtype, chunk_size)
        return Tensor(random_streams.vectors(method, args, (*grid, Cut.even(n, max(n, 1))), self._seed(), dtype, block))


@with_chunks
class RandomState(Generator):
    """The older interface of the same name, whose functions this module has too."""

    @_as_in_mars
    def rand(self, *shape: int, dtype: Any = FLOAT, chunk_size: ChunkSize = None) -> Tensor:
        """Return numbers evenly spread over [0, 1); each argument is the length of an axis."""
        return self.random(shape, dtype, chunk_size=chunk_size)

    @_as_in_mars
    def randn(self, *shape: int, dtype: Any = FLOAT, chunk_size: ChunkSize = None) -> Tensor:
        """Return standard normal numbers; each argument is the length of an axis."""
        return self.standard_normal(shape, dtype, chunk_size=chunk_size)

    @_as_in_mars
    def random_sample(self, size: Size = None, *, chunk_size: ChunkSize = None) -> Tensor:
        """Return numbers evenly spread over [0, 1)."""
        return self.random(size, chunk_size=chunk_size)

    ranf = sample = random_sample

    @_as_in_mars
    def randint(
        self, low: Any, high: Any = None, size: Size = None, dtype: Any = INT, *, chunk_size: ChunkSize = None
    ) -> Tensor:
        """Return whole numbers from `low` up to, not including, `high`."""
        return self.integers(low, high, size, dtype, chunk_size=chunk_size)

    @_as_in_mars
    def random_integers(self, low: Any, high: Any = None, size: Size = None, *, chunk_size: ChunkSize = None) -> Tensor:
        """Return whole numbers from `low` to `high`, from 1 to `low` if `high` is left out."""
        if high is None:
            low, high = 1, low
        return self.integers(low, high, size, INT, True, chunk_size=chunk_size)

    def seed(self, seed: Any = None) -> None:
        """Begin again with another seed."""
        with self._lock:
            self._entropy = _entropy(seed)
            self._calls = self._children = 0


def _entropy(seed: Any) -> tuple[int, ...]:
    if seed is None:
        return (secrets.randbits(128),)
    if isinstance(seed, Generator):
        *entropy, call = seed._seed()
        # Not the words themselves: a `SeedSequence` takes words that lack for zeros, so that call 0 would be its seed.
        return _entropy(np.random.SeedSequence(entropy, spawn_key=(call,)))
    if isinstance(seed, np.random.Generator | np.random.RandomState):
        return tuple([int(word) for word in np.frombuffer(seed.bytes(16), np.uint32)])
    if isinstance(seed, np.random.BitGenerator):
        return _entropy(np.random.Generator(seed))
    if isinstance(seed, np.random.SeedSequence):
        return tuple([int(word) for word in seed.generate_state(4)])
    words = np.atleast_1d(np.asarray(seed)).tolist()
    if any(isinstance(one, bool) or not isinstance(one, int) for one in words):
        raise TypeError(f"seed is {seed!r}: give whole numbers that are not negative, a generator or a SeedSequence")
    if any(one < 0 for one in words):
        raise ValueError(f"seed is {seed!r}: give whole numbers that are not negative")
    return tuple(words)


def _values(value: Any) -> Any:
    return value.fetch() if isinstance(value, Tensor) else value


def _numbers(value: Any) -> Any:
    """Return a parameter as a tuple of numbers, or as the number that it is."""
    found = np.asarray(_values(value), FLOAT)
    return tuple(found.tolist()) if found.ndim else found.item()


def _is_whole(value: Any) -> bool:
    """Say whether a value is an array of whole numbers without axes."""
    return isinstance(value, Tensor | np.ndarray) and not value.ndim and value.dtype.kind in "iu"


def _population(given: Any, axis: int) -> tuple[Tensor | None, int, int]:
    """Return the array to draw from, None for `range` of a number, and its length along an axis from 0 up."""
    if isinstance(given, int | np.integer):
        return None, int(given), 0
    values = Tensor(as_node(given))
    axis = axis_of(axis, values.ndim)
    return values, values.shape[axis], axis


def default_rng(seed: Any = None) -> Generator:
    """Return a generator; without a seed its numbers are other ones each time.

    `seed` is a whole number, an array of them, or a `SeedSequence`. A generator of NumPy is drawn from for the seed; a
    generator of Weft is returned itself. TypeError, ValueError: `seed` is something else.
    """
    return seed if isinstance(seed, Generator) else Generator(seed)


shared = RandomState()
"""What the functions of the namespace are methods of."""
expose(__name__, "Generator RandomState default_rng", space="random")
expose(
    __name__,
    " ".join(f"shared.{name}" for name in dir(shared) if not name.startswith("_") and name != "spawn"),
    space="random",
)
