"""What fits where, and that taking and giving back ends where it began."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.graph.builder import Graph
from weft.model.errors import UsageError
from weft.model.resources import ONE_SLOT, ONE_SLOT_ONLY, Placement, Resources

NODE = Resources(cpu=8, memory=1000, gpu=2, gpu_type="a100")


@pytest.mark.parametrize(
    ("needs", "fits"),
    [
        (ONE_SLOT, True),
        (Resources(cpu=8, memory=1000, gpu=2), True),
        (Resources(cpu=8.5), False),
        (Resources(memory=1001), False),
        (Resources(gpu=3), False),
        (Resources(gpu=1, gpu_type="a100"), True),
        (Resources(gpu=1, gpu_type="h100"), False),
        (Resources(gpu_type="h100"), True),  # asks for none of that type
        (Resources(cpu=0, tokens=(("slots", 99),)), True),  # tokens belong to the job, not to a node
    ],
)
def test_fits(needs, fits):
    assert needs.fits(NODE) is fits


def test_the_first_alternative_that_fits_is_taken():
    alternatives = (Resources(gpu=1, gpu_type="h100"), Resources(gpu=2), Resources(cpu=8))
    assert next(needs for needs in alternatives if needs.fits(NODE)) is alternatives[1]
    assert next(needs for needs in alternatives if needs.fits(Resources(cpu=8))) is alternatives[2]
    assert not any(needs.fits(Resources(cpu=4)) for needs in alternatives)


@given(st.lists(st.sampled_from((0.1, 0.2, 0.3, 1 / 3, 0.7, 1.1)), max_size=200), st.randoms(use_true_random=False))
def test_a_node_that_was_given_back_has_room_for_all_of_it(shares, random):
    left = NODE.cpu
    for cpu in shares:
        left -= cpu
    random.shuffle(shares)
    for cpu in shares:
        left += cpu
    assert Resources(cpu=NODE.cpu).fits(Resources(cpu=left))
    assert not Resources(cpu=NODE.cpu + 0.001).fits(Resources(cpu=left))


@pytest.mark.parametrize("parts", [3, 7, 10, 30])
def test_a_core_has_room_for_its_equal_parts(parts):
    left = 1.0
    for _ in range(parts):
        assert Resources(cpu=1 / parts).fits(Resources(cpu=left))
        left -= 1 / parts
    assert not Resources(cpu=1 / parts).fits(Resources(cpu=left))


def test_plain_and_light():
    assert (Resources(),) == ONE_SLOT_ONLY
    assert ONE_SLOT.plain
    assert not ONE_SLOT.light
    waiting = Resources(cpu=0, tokens=(("slots", 1),))
    assert waiting.light
    assert not waiting.plain
    for needs in (Resources(cpu=2), Resources(memory=1), Resources(gpu=1)):
        assert not needs.plain
        assert not needs.light
    assert not Resources(cpu=0, memory=1).light


@pytest.mark.parametrize(
    ("needs", "text"),
    [
        (ONE_SLOT, "cpu 1"),
        (Resources(cpu=0.5, memory=2048), "cpu 0.5, memory 2,048 bytes"),
        (Resources(gpu=1), "cpu 1, gpu 1"),
        (Resources(gpu=2, gpu_type="a100", tokens=(("slots", 1),)), "cpu 1, gpu 2 of type a100, slots 1"),
    ],
)
def test_text(needs, text):
    assert str(needs) == text


@pytest.mark.parametrize(
    ("placement", "allowed"),
    [
        (Placement(), {"here bank", "here shop", "there bank"}),
        (Placement(node="here"), {"here bank", "here shop"}),
        (Placement(party="bank"), {"here bank", "there bank"}),
        (Placement("here", "bank"), {"here bank"}),
        (Placement("nowhere"), set()),
    ],
)
def test_placement(placement, allowed):
    workers = ["here bank", "here shop", "there bank"]
    assert {worker for worker in workers if placement.allows(*worker.split())} == allowed


@pytest.mark.parametrize(
    ("memory", "nbytes"), [("4GiB", 4 << 30), ("512 MB", 512_000_000), ("64B", 64), (1 << 40, 1 << 40)]
)
def test_memory_may_be_the_text_of_a_size(memory, nbytes):
    needs = Resources(memory=memory)
    assert (needs, hash(needs)) == (Resources(memory=nbytes), hash(Resources(memory=nbytes)))
    assert str(needs) == f"cpu 1, memory {nbytes:,} bytes"
    assert pickle.loads(pickle.dumps(needs)) == needs


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"memory": "plenty"}, "memory is 'plenty'; it must be a number of bytes, such as 512MiB or 4GiB"),
        ({"memory": "512"}, "memory is '512'; it must have a unit"),
        ({"memory": 1.5}, "memory is 1.5; it must be a number of bytes"),
        ({"memory": True}, "memory is True; it must be a number of bytes"),
        ({"cpu": "2"}, "cpu is '2'; it must be a number"),
        ({"gpu": 0.5}, "gpu is 0.5; it must be a whole number"),
        ({"gpu": True}, "gpu is True; it must be a whole number"),
    ],
)
def test_amounts_of_other_types_are_refused_by_the_constructor(wrong, message):
    with pytest.raises(UsageError) as caught:
        Resources(**wrong)
    assert caught.value.message.startswith(message)


def test_a_vertex_takes_memory_as_a_text():
    graph = Graph()
    node = graph.add(print, resources=Resources(cpu=2, memory="4GiB", gpu=1))
    assert graph.finish().vertices[node.id].resources == (Resources(cpu=2, memory=4 << 30, gpu=1),)
