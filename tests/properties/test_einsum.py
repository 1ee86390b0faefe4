"""Random sums of products over operands of several types."""

import numpy as np
import pytest

import weft.tensor as wt

TYPES = ("?", "u1", "i1", "u2", "i4", "i8", "f4", "f8", "c8")
LENGTHS = {"a": 3, "b": 4, "c": 1, "d": 5, "e": 2}


def drawn(rng):
    """Return subscripts and operands: two letters or more for each, each of which some other may lack."""
    terms = ["".join(rng.permutation(list(LENGTHS))[: rng.integers(1, 4)]) for _ in range(rng.integers(1, 4))]
    letters = sorted(set("".join(terms)))
    output = "".join(rng.permutation(letters)[: rng.integers(0, len(letters) + 1)])
    operands = []
    for term in terms:
        dtype = np.dtype(rng.choice(TYPES))
        values = rng.integers(0, 2 if dtype.kind == "b" else 100, [LENGTHS[c] for c in term])
        operands.append((values + 0.5 * (dtype.kind in "fc")).astype(dtype))
    return f"{','.join(terms)}->{output}", operands


@pytest.mark.parametrize("part", range(10))
def test_products_are_summed_in_the_type_of_all_operands(seed, part):
    rng = np.random.default_rng([seed, part])
    for _ in range(30):
        subscripts, operands = drawn(rng)
        wanted = np.einsum(subscripts, *operands)
        chunk = int(rng.integers(1, 6))
        found = wt.einsum(subscripts, *[wt.asarray(one, chunk_size=chunk) for one in operands])
        said = f"{subscripts} of {[one.dtype.str for one in operands]} in chunks of {chunk}"
        assert found.dtype == wanted.dtype, said
        if wanted.dtype.kind in "bui":
            np.testing.assert_array_equal(found.fetch(), wanted, said)
        else:
            np.testing.assert_allclose(found.fetch(), wanted, float(np.finfo(wanted.dtype).eps) ** 0.6, err_msg=said)
