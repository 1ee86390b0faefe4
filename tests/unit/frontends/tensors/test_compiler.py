"""What graph an expression becomes: fusion, common sub-expressions, and a cost that does not depend on chunks."""

from collections import Counter

import numpy as np
import pytest

from weft.frontends.tensors import blocked_products, shaping, sources
from weft.frontends.tensors.blocks import apply, rechunk
from weft.frontends.tensors.chunks import Cut
from weft.frontends.tensors.compiler import compile_nodes
from weft.frontends.tensors.nodes import ArrayNode, walk
from weft.frontends.tensors.reductions import reduce
from weft.operators.region_steps import KernelKind, OperandSlot
from weft.operators.regions import Region

F8 = np.dtype(np.float64)


def _random(place):
    raise AssertionError("nothing is computed here")


def rand(n=20, chunk=5):
    """A source that costs something, and is like no other."""
    return ArrayNode(KernelKind.PLACED, _random, [], (Cut.even(n, chunk),), F8, unique=True, name="rand")


def total(node):
    return reduce(np.add, node, None, keepdims=False, dtype=F8, name="sum")


def vertices(*nodes, **options):
    graph = compile_nodes(nodes, **options).graph
    return {name: vertex.parallelism for name, vertex in graph.vertices.items()}


def regions_of(*nodes, **options) -> list[Region]:
    made = [vertex.program.target for vertex in compile_nodes(nodes, **options).graph.vertices.values()]
    return [region for region in made if isinstance(region, Region)]


def test_the_seeds_example_under_the_seeds_rule():
    """(a + b).sum(): the addition is fused with the sum, the sources with nothing."""
    made = vertices(total(apply(np.add, rand(), rand())), fusion="chain")
    assert made == {"rand": 4, "rand-2": 4, "add-sum": 4, "combine-squeeze": 1}


@pytest.mark.parametrize("fusion", ["chain", "region"])
def test_what_is_fused_is_what_was_written(fusion):
    """Each operation is a step of one vertex, in the order of what it reads, and no other step is there."""
    a, b = rand(), rand()
    both = apply(np.multiply, apply(np.add, a, b), apply(np.exp, b))
    nodes = [both, total(apply(np.sqrt, both)), rechunk(apply(np.negative, a), (Cut.even(20, 10),))]
    regions = regions_of(*nodes, fusion=fusion)
    assert Counter(step.fn for region in regions for step in region.steps) == Counter(node.fn for node in walk(nodes))
    for region in regions:
        for at, step in enumerate(region.steps):
            assert all(arg.at < region.inputs + at for arg in step.args if type(arg) is OperandSlot)


def test_what_has_several_results_is_fused_with_none_of_their_readers_under_the_seeds_rule():
    x = rand()
    mantissa, exponent = (apply(np.frexp, x, out=at) for at in range(2))
    regions = regions_of(total(mantissa), total(apply(np.negative, exponent)), fusion="chain")
    (several,) = [region for region in regions if any(step.fn is np.frexp for step in region.steps)]
    assert len(several.steps) == 1


def test_a_region_takes_in_all_that_is_read_chunk_by_chunk():
    assert vertices(total(apply(np.add, rand(), rand()))) == {"rand-add-sum": 4, "combine-squeeze": 1}


def test_a_diamond_is_one_region():
    a, b, c = rand(), rand(), rand()
    both = apply(np.subtract, apply(np.multiply, apply(np.add, a, b), c), apply(np.divide, a, b))
    assert vertices(both) == {"rand-etc-subtract": 4}


def test_what_two_regions_read_is_a_vertex_of_its_own():
    a = apply(np.exp, rand())
    made = vertices(total(a), rechunk(a, (Cut.even(20, 10),)))
    assert made == {"rand-exp": 4, "sum": 4, "combine-squeeze": 1, "rechunk": 2}


def test_a_wanted_node_is_stored_though_another_reads_it():
    a = apply(np.exp, rand())
    made = vertices(a, apply(np.add, a, 1.0))
    assert made == {"rand-exp": 4, "add": 4}


def test_cheap_sources_are_made_again_by_each_reader():
    a = sources.arange((Cut.even(20, 5),), 0, 1, 1, F8)
    made = vertices(total(apply(np.exp, a)), apply(np.add, a, 1.0))
    assert made == {"arange-exp-sum": 4, "arange-add": 4, "combine-squeeze": 1}


def test_common_sub_expressions_are_computed_once():
    a = rand()
    made = vertices(apply(np.add, apply(np.exp, a), 1.0), apply(np.add, apply(np.exp, a), 1.0))
    assert made == {"rand-exp-add": 4}


def test_numbers_that_are_equal_and_not_the_same_are_not_common():
    a = rand()
    assert len(vertices(apply(np.copysign, a, 0.0), apply(np.copysign, a, -0.0))) > 2


def test_sources_of_chance_are_never_common():
    assert vertices(rand(), rand()) == {"rand": 4, "rand-2": 4}


def test_only_the_last_change_of_chunks_is_made():
    a = rand()
    made = vertices(rechunk(rechunk(a, (Cut.even(20, 4),)), (Cut.even(20, 10),)))
    assert made == {"rand": 4, "rechunk": 2}
    assert vertices(rechunk(rechunk(a, (Cut.even(20, 4),)), (Cut.even(20, 5),))) == {"rand": 4}


def test_a_graph_of_a_million_chunks_is_as_small_as_one_of_four():
    def expression(n, chunk):
        x = sources.full((Cut.even(n, chunk),), 1.0, F8)
        return apply(np.subtract, apply(np.multiply, apply(np.add, x, 1.0), 2.0), x)

    few, many = (compile_nodes([expression(n, 1)]).graph for n in (4, 10**6))
    assert len(few.vertices) == len(many.vertices) == 1
    assert next(iter(many.vertices.values())).parallelism == 10**6


def test_a_deep_expression_needs_no_deep_stack():
    node = rand()
    for _ in range(5_000):
        node = apply(np.add, node, 1.0)
    assert vertices(node) == {"rand-add": 4}


def test_a_product_reads_rows_and_columns():
    x = ArrayNode(KernelKind.PLACED, _random, [], (Cut.even(6, 2), Cut.even(4, 2)), F8, unique=True, name="x")
    product = blocked_products.matmul(x, shaping.permute(x, (1, 0)), F8)
    graph = compile_nodes([product]).graph
    assert graph.vertices["matmul"].parallelism == 9


def test_slices_of_arrays_do_not_come_between_operations_that_share_tiles():
    a, b, c = (sources.from_array(np.ones(20), (Cut.even(20, 5),), F8) for _ in range(3))
    both = apply(np.multiply, apply(np.add, a, b), c)
    (vertex,) = compile_nodes([both]).graph.vertices.values()
    assert [step.fn for step in vertex.program.target.steps[3:]] == [np.add, np.multiply]


def edges_by_tasks(n, chunk):
    """Return what an engine looks at for a concatenation of n arrays: each edge, for each task that it leads to."""
    graph = compile_nodes([total(shaping.concat([rand(chunk=chunk) for _ in range(n)], 0, F8))]).graph
    return sum(graph.vertices[edge.dst].parallelism for edge in graph.edges)


def test_a_concatenation_of_many_costs_as_much_for_each():
    for chunk, most in ((20, 2), (5, 4 * 3 * 16)):
        few, many = edges_by_tasks(100, chunk), edges_by_tasks(400, chunk)
        assert few <= most * 100
        assert many <= most * 400


def test_small_arrays_are_put_into_one_chunk_by_the_task_that_makes_them():
    row = [sources.full((Cut.even(3, 3),), float(i), F8) for i in range(100)]
    assert vertices(shaping.concat([apply(np.exp, one) for one in row], 0, F8)) == {"full-exp-concat": 1}


def test_what_costs_something_is_not_put_together_by_one_task():
    made = vertices(shaping.concat([rand(n=5000, chunk=5000) for _ in range(20)], 0, F8))
    assert sum(name.startswith("rand") for name in made) == 20
