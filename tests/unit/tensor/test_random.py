"""Random arrays: the same seed gives the same numbers, whoever computes them."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from weft.frontends.tensors.arrays import statistics
from weft.tensor import random
from weft.tensor.sessions import TensorSession as Session

PARAMETERS: dict[str, tuple[Any, ...]] = {
    "beta": (1.0, 2.0),
    "binomial": (10, 0.3),
    "chisquare": (2.0,),
    "f": (3.0, 4.0),
    "gamma": (2.0, 3.0),
    "geometric": (0.4,),
    "hypergeometric": (5, 6, 7),
    "logseries": (0.5,),
    "negative_binomial": (3, 0.4),
    "noncentral_chisquare": (2.0, 3.0),
    "noncentral_f": (2.0, 3.0, 4.0),
    "pareto": (3.0,),
    "power": (2.0,),
    "standard_gamma": (2.0,),
    "standard_t": (5.0,),
    "triangular": (0.0, 1.0, 2.0),
    "vonmises": (0.0, 1.0),
    "wald": (1.0, 2.0),
    "weibull": (1.5,),
    "zipf": (2.5,),
    "gumbel": (),
    "laplace": (),
    "logistic": (),
    "lognormal": (),
    "poisson": (),
    "rayleigh": (),
    "standard_cauchy": (),
}
WHOLE = {"binomial", "geometric", "hypergeometric", "logseries", "negative_binomial", "poisson", "zipf"}


@pytest.mark.parametrize("name", [*PARAMETERS])
def test_every_distribution_has_the_shape_and_dtype_asked_for(name):
    made = getattr(random, name)(*PARAMETERS[name], size=(10, 3), chunk_size=4)
    assert made.shape == (10, 3)
    assert made.fetch().dtype == (np.int64 if name in WHOLE else np.float64)


def test_a_seed_gives_the_same_numbers_on_one_worker_and_on_many():
    def draw():
        x: Any = random.default_rng(7).normal(1.0, 2.0, (300, 40), chunk_size=37)
        return x, statistics.sum(x * 2, axis=0)

    with Session(workers=1) as one:
        a = [x.fetch(one) for x in draw()]
    with Session(workers=3) as three:
        b = [x.fetch(three) for x in draw()]
    for x, y in zip(a, b, strict=True):
        assert np.array_equal(x, y)


DRAWS: dict[str, Any] = {
    "long": lambda rng: rng.normal(size=700_001),
    "single": lambda rng: rng.random(1_000_003, dtype="f4"),
    "rows": lambda rng: rng.uniform(size=(3_001, 300)),
    "few": lambda rng: rng.exponential(size=(3, 2, 400_000)),
    "small": lambda rng: rng.random((3, 4)),
    "short": lambda rng: rng.integers(0, 200, size=3_000_000, dtype="u1"),
    "parameters": lambda rng: rng.poisson(np.arange(300.0), size=(3_001, 300)),
    "chosen": lambda rng: rng.choice(5, 600_000, p=[0.1, 0.2, 0.3, 0.2, 0.2]),
    "vectors": lambda rng: rng.dirichlet([1.0, 2.0, 3.0], 300_000),
    "none": lambda rng: rng.poisson(3.0, size=(0, 5)),
}


@pytest.mark.parametrize("name", [*DRAWS])
def test_numbers_do_not_depend_on_workers_and_memory(name):
    found, cuts = [], set()
    for how in ({"workers": 1}, {"workers": 8}, {"workers": 2, "memory": "24MiB", "backend": "threads"}):
        with Session(**how):
            made = DRAWS[name](random.default_rng(42))
            cuts.add(made.chunks)
            found.append(made.fetch())
    assert all(np.array_equal(one, found[0]) for one in found)
    assert len(cuts) > 1 or found[0].nbytes < 2**21


def test_blocks_have_streams_of_their_own():
    x = random.default_rng(1).random((4, 3 * 65_536)).fetch().reshape(-1)
    assert len(np.unique(x)) == x.size
    parts = x.reshape(-1, 65_536)
    assert np.abs(np.corrcoef(parts) - np.eye(len(parts))).max() < 0.03


def test_only_arrays_of_ours_are_shuffled():
    with pytest.raises(TypeError, match=r"x is ndarray.*use permutation\(x\)"):
        random.shuffle(np.arange(4))  # type: ignore[arg-type]


def test_chunks_and_calls_have_streams_of_their_own():
    rng = random.default_rng(1)
    x, y = rng.random(1000, chunk_size=100).fetch(), rng.random(1000, chunk_size=100).fetch()
    assert len(np.unique(np.concatenate([x, y]))) == 2000


def test_without_a_seed_numbers_are_other_ones_each_time():
    assert not np.array_equal(random.default_rng().random(10).fetch(), random.default_rng().random(10).fetch())


def test_the_moments_are_those_of_the_distribution():
    rng = random.default_rng(11)
    x = rng.normal(2.0, 3.0, 200_000, chunk_size=9_999)
    assert abs(float(statistics.mean(x)) - 2) < 0.05
    assert abs(float(statistics.std(x)) - 3) < 0.05
    u = rng.uniform(-1.0, 3.0, 200_000, chunk_size=9_999).fetch()
    assert u.min() >= -1
    assert u.max() < 3


def test_parameters_may_be_arrays():
    x = random.default_rng(2).poisson(np.array([1.0, 100.0, 10_000.0]), size=(50, 3), chunk_size=20).fetch()
    assert np.all(np.diff(x.mean(axis=0)) > 0)


def test_choices_and_permutations():
    rng = random.default_rng(3)
    assert sorted(rng.permutation(20).fetch().tolist()) == list(range(20))
    assert sorted(rng.choice(5, 5, replace=False).fetch().tolist()) == list(range(5))
    assert set(rng.choice(np.array([3, 9]), 100, p=[0.5, 0.5]).fetch().tolist()) == {3, 9}
    assert np.allclose(rng.dirichlet([1.0, 2.0, 3.0], 7, chunk_size=2).fetch().sum(axis=1), 1)
    assert np.all(rng.multinomial(9, [0.2, 0.8], (4, 2)).fetch().sum(axis=-1) == 9)


def test_seeding_again_begins_again():
    state = random.RandomState(5)
    first = state.rand(4, 2).fetch()
    state.seed(5)
    assert np.array_equal(state.rand(4, 2).fetch(), first)


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: random.default_rng(-1), ValueError, "seed is -1"),
        (lambda: random.normal(0.0, -1.0, 3), ValueError, "scale < 0"),
        (lambda: random.binomial(3, 2.0, 3), ValueError, "p"),
        (lambda: random.beta(1.0), TypeError, "beta takes a, b, size"),
        (lambda: random.random((3, -1)), ValueError, "size is"),
        (lambda: random.random(3, np.int64), TypeError, "Unsupported dtype"),
    ],
)
def test_what_is_wrong_is_told_at_once(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


def test_spawned_generators_are_independent_and_leave_the_numbers_of_theirs():
    one, other = random.default_rng(3), random.default_rng(3)
    first, second = one.spawn(2)
    (third,) = one.spawn(1)
    (inner,) = first.spawn(1)
    alone = other.random(4).fetch().tolist()
    assert one.random(4).fetch().tolist() == alone
    again = [each.random(4).fetch().tolist() for each in (*other.spawn(2), *other.spawn(1))]
    drawn = [each.random(4).fetch().tolist() for each in (first, second, third)]
    assert drawn == again
    assert len({*map(tuple, [alone, *drawn, inner.random(4).fetch().tolist()])}) == 5
    assert one.spawn(0) == []
    with pytest.raises(ValueError, match="non-negative"):
        one.spawn(-1)


def test_a_generator_seeded_by_another_has_numbers_of_its_own():
    """The words of a seed and the number 0 behind them are one seed for NumPy."""
    one = random.default_rng(3)
    other = random.RandomState(one)
    assert one.random(4).fetch().tolist() != other.random(4).fetch().tolist()
    later = one.random(4).fetch().tolist(), other.random(4).fetch().tolist()
    assert later[0] != later[1]


@pytest.mark.parametrize("kind", [random.default_rng, random.RandomState])
@pytest.mark.parametrize("copied", [lambda one: pickle.loads(pickle.dumps(one)), copy.copy, copy.deepcopy])
def test_a_copy_of_a_generator_goes_on_as_it_does(kind, copied):
    one = kind(3)
    one.random(4)
    one.spawn(1)
    other = copied(one)
    assert type(other) is type(one)
    assert one.random(4).fetch().tolist() == other.random(4).fetch().tolist()
    mine, others = [each.spawn(2)[1].random(4).fetch().tolist() for each in (one, other)]
    assert mine == others
