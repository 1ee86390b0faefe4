import pytest

from tests.unit.frontends.federated.components.parts_of import ARBITER, GUEST, HOST
from weft.model.errors import UsageError
from weft.testing.parts import PartInputs, run_parts

NAMED = {"model_version": "1", "component_name": "hetero_lr_0"}


def load(models, **more):
    given = {one: PartInputs(NAMED | more, {}, {"model": {"hetero_lr_0": model}}) for one, model in models.items()}
    return run_parts("ModelLoader", given)


def test_each_party_has_its_own_part_of_a_model():
    ran = load({GUEST: {"kind": "HeteroLR", "of": "guest"}, HOST: {"kind": "HeteroLR", "of": "host"}, ARBITER: {}})
    assert [ran.outputs[one].model and ran.outputs[one].model["of"] for one in (GUEST, HOST, ARBITER)] == [
        "guest",
        "host",
        None,
    ]
    assert not ran.sent


def test_a_model_that_is_not_here_and_steps_are_refused():
    with pytest.raises(UsageError, match="host 2 has no model of hetero_lr_0 in version 1"):
        load({GUEST: {"kind": "HeteroLR"}, HOST: {}})
    with pytest.raises(UsageError, match="step_index"):
        load({GUEST: {"kind": "HeteroLR"}}, step_index=3)


def test_a_cache_has_no_effect():
    ran = run_parts("CacheLoader", {GUEST: PartInputs({"cache_key": "k"}), HOST: PartInputs()})
    assert "cache_key has no effect" in ran.records[GUEST].summaries["notes"][0]
    assert not ran.sent
