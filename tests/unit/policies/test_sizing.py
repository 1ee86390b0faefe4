"""GPUs by what was measured: the cheapest that holds it, and what comes after."""

import pytest

from weft.graph.task import VertexHistory
from weft.model.errors import UsageError
from weft.model.resources import Resources
from weft.policies.sizing import ResourceOffer, most_used, sized

GB = 10**9
LARGE = ResourceOffer(Resources(gpu=1, gpu_type="A100"), 80 * GB, speed=5.0, price=5.0)
SMALL = ResourceOffer(Resources(gpu=1, gpu_type="T4"), 16 * GB, speed=1.0, price=1.0)
OLD = ResourceOffer(Resources(gpu=1, gpu_type="K80"), 12 * GB, speed=0.3, price=0.4)
ALL = [LARGE, SMALL, OLD]


def types(usage: dict[str, float]) -> list[str]:
    return [each.gpu_type for each in sized(usage, LARGE, ALL)]


def test_a_large_gpu_that_idles_becomes_a_small_one():
    assert types({"gpu_memory": 6 * GB, "gpu_busy": 0.15}) == ["T4", "A100"]


def test_memory_with_headroom_must_fit():
    assert types({"gpu_memory": 12.8 * GB, "gpu_busy": 0.15})[0] == "T4"
    assert types({"gpu_memory": 13 * GB, "gpu_busy": 0.15}) == ["A100"]


def test_a_busy_gpu_is_kept():
    assert types({"gpu_memory": GB, "gpu_busy": 0.9}) == ["A100"]


def test_nothing_fits_and_the_largest_is_tried_alone():
    assert types({"gpu_memory": 200 * GB, "gpu_busy": 1.0}) == ["A100"]


def test_what_was_not_measured_is_believed_to_be_busy():
    assert types({}) == ["A100"]


def test_the_most_of_all_runs_counts():
    pasts = [
        VertexHistory("v", 0.0, 1, 1.0, 1.0, 0, (), usage) for usage in ({"memory": 2.0}, {"memory": 3.0, "busy": 0.1})
    ]
    assert most_used(pasts) == {"memory": 3.0, "busy": 0.1}
    assert most_used([]) == {}


def test_no_offer_is_an_error():
    with pytest.raises(UsageError, match="no offer"):
        sized({}, LARGE, [])
