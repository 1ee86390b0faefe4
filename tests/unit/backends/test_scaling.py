"""What the autoscaler of a cluster is asked for."""

from weft.backends.scaling import BUNDLES, ScalingProvider, ScalingRequests
from weft.engine.provider import NodeKind, SlotRequest
from weft.model.resources import Resources

ONE = Resources()
PRESENT = [Resources(4), Resources(8, gpu=1)]


class Autoscaler:
    def __init__(self, plain=0):
        self.asked: list[list[dict[str, float]]] = []
        self.plain = plain
        self.requests = ScalingRequests([NodeKind(4)], self.asked.append, lambda: self.plain)
        self.provider = ScalingProvider((), lambda _: None, self.requests)


def test_nothing_is_asked_for_while_nothing_waits():
    scaler = Autoscaler(plain=7)
    scaler.requests.tell(PRESENT)
    scaler.requests.withdraw()
    assert scaler.asked == []


def test_plain_tasks_ask_for_a_core_each_beside_the_present_nodes():
    scaler = Autoscaler(plain=3)
    scaler.provider.acquire(SlotRequest("j", -1, (("", 1, (ONE,), None),)))
    scaler.requests.tell(PRESENT)
    assert scaler.asked == [[{"CPU": 4.0}, {"CPU": 8.0, "GPU": 1.0}, *[{"CPU": 1.0}] * 3]]


def test_a_gang_asks_for_all_its_tasks_with_their_memory_and_gpus():
    scaler = Autoscaler()
    large = Resources(cpu=1.5, memory=100, gpu=2, gpu_type="H100", custom=(("licence", 1.0),))
    scaler.provider.acquire(SlotRequest("j", 1, (("a", 2, (large, ONE), None), ("b", 1, (ONE,), None))))
    scaler.requests.tell([])
    wanted = {"CPU": 2.0, "memory": 100.0, "GPU": 2.0, "accelerator_type:H100": 0.001, "licence": 1.0}
    assert scaler.asked == [[wanted, wanted, {"CPU": 1.0}]]


def test_the_same_request_is_sent_once_and_withdrawn_when_nothing_waits():
    scaler = Autoscaler()
    scaler.provider.acquire(SlotRequest("j", 1, (("a", 2, (ONE,), None),)))
    scaler.requests.tell([])
    scaler.requests.tell([])
    scaler.provider.release("j", 1)
    scaler.requests.tell([])
    assert scaler.asked == [[{"CPU": 1.0}] * 2, []]


def test_the_end_of_a_session_withdraws_its_request():
    scaler = Autoscaler()
    scaler.provider.acquire(SlotRequest("j", 1, (("a", 2, (ONE,), None),)))
    scaler.requests.tell([])
    scaler.requests.withdraw()
    scaler.requests.withdraw()
    assert scaler.asked[1:] == [[]]


def test_a_request_has_a_bound():
    scaler = Autoscaler(plain=10**6)
    scaler.provider.acquire(SlotRequest("j", -1, (("", 1, (ONE,), None),)))
    scaler.provider.acquire(SlotRequest("j", 1, (("a", 10**6, (ONE,), None),)))
    scaler.requests.tell(PRESENT)
    assert len(scaler.asked[0]) == len(PRESENT) + BUNDLES


def test_the_kinds_of_the_autoscaler_may_join():
    provider = Autoscaler().provider
    assert provider.grows
    assert provider.possible() == (NodeKind(4),)
