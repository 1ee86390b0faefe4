"""Every byte that parties send in a job with real encryption, searched for what must stay at its party."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from tests.unit.parties.works import Works

pytestmark = pytest.mark.slow
ROWS = 60
TABLE = {"table": {"name": "rows", "namespace": "n"}}


def component(module: str, **data: str) -> dict[str, Any]:
    """Return a component of a DSL with these sources."""
    inside = {"input": {"data": {key: [f"{source}.data"] for key, source in data.items()}}} if data else {}
    return {"module": module, "output": {"data": ["data"], "model": ["model"]}} | inside


def files() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return conf and DSL of a job with a linear model and boosted trees."""
    components = {
        "reader_0": {"module": "Reader", "output": {"data": ["data"]}},
        "data_transform_0": component("DataTransform", data="reader_0"),
        "intersection_0": {**component("Intersection", data="data_transform_0"), "output": {"data": ["data"]}},
        "hetero_lr_0": component("HeteroLR", train_data="intersection_0"),
        "hetero_secure_boost_0": component("HeteroSecureBoost", train_data="intersection_0"),
        "binning_0": component("HeteroFeatureBinning", data="intersection_0"),
    }
    label = {"with_label": True, "label_name": "y", "label_type": "int"}
    conf = {
        "dsl_version": 2,
        "initiator": {"role": "guest", "party_id": "1"},
        "role": {"guest": ["1"], "host": ["2"], "arbiter": ["3"]},
        "component_parameters": {
            "common": {
                "reader_0": TABLE,
                "hetero_lr_0": {"max_iter": 2, "batch_size": -1},
                "hetero_secure_boost_0": {"num_trees": 2, "tree_param": {"max_depth": 2}},
            },
            "role": {"guest": {"0": {"data_transform_0": label}}, "host": {"0": {"data_transform_0": {}}}},
        },
    }
    return conf, {"components": components}


def forms(number: float) -> list[bytes]:
    """Return a number as text and as it stands in arrays and in MessagePack."""
    return [f"{number:.6f}".encode(), struct.pack("<d", number), struct.pack(">d", number)]


def test_no_id_no_feature_and_no_label_crosses_between_parties(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(5)
    values = np.round(random.normal(size=(ROWS, 4)) * 1000, 6) + 0.123456
    y = (values[:, 0] + values[:, 3] > 0).astype(int)
    ids = [f"client-{at}-{random.integers(10**9)}" for at in range(ROWS)]
    order = random.permutation(ROWS)
    sent: list[tuple[str, str, bytes]] = []
    carry = Works.carry

    def kept(works: Works, sender: str, to: str, path: str, body: bytes) -> bytes:
        answer = carry(works, sender, to, path, body)
        sent.extend([(sender, path, body), (to, path, answer)])
        return answer

    monkeypatch.setattr(Works, "carry", kept)
    with Works(tmp_path, "1", "2", "3") as works:
        mine = [f"{ids[at]},{y[at]},{values[at, 0]:.6f},{values[at, 1]:.6f}" for at in range(ROWS)]
        theirs = [f"{ids[at]},{values[at, 2]:.6f},{values[at, 3]:.6f}" for at in order]
        works.of["1"].upload("n", "rows", "\n".join(["id,y,a,b", *mine]).encode())
        works.of["2"].upload("n", "rows", "\n".join(["id,c,d", *theirs]).encode())
        job = works.of["1"].submit(*files())
        assert works.of["1"].ended(job) == "success", works.of["1"].jobs.show(job)["reason"]
        assert [one.ended(job) for one in works.of.values()] == ["success"] * 3
    assert {(sender, path) for sender, path, _ in sent} >= {("1", "/values"), ("2", "/values"), ("3", "/values")}
    bytes_of = {id: b"\0".join(body for sender, _, body in sent if sender == id) for id in "123"}
    assert len(bytes_of["1"]) > ROWS * 512, "the encrypted derivatives of all rows are among them"
    whole = b"\0".join(bytes_of.values())
    secrets = {id.encode() for id in ids} | {form for one in values.ravel().tolist() for form in forms(one)}
    assert not [one for one in secrets if one in whole]
    labels = [
        y[some].astype(kind).tobytes() for some in (np.arange(ROWS), order) for kind in ("<i8", "<f8", "u1", "<i4")
    ]
    labels += [np.packbits(some).tobytes() for some in (y, y[order], 1 - y, 1 - y[order])]
    assert not [one for one in labels if one in whole]
