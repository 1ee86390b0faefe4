"""Parties and rows for tests of components: the breast cancer data of scikit-learn."""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from weft.frontends.federated.components.base import ComponentPart
from weft.frontends.federated.components.frame import PartyFrame
from weft.frontends.federated.components.registry import component
from weft.frontends.federated.schema import Party
from weft.frontends.federated.wire import encode
from weft.testing.parts import PartExchange, PartInputs, PartRecord, SentValue, run_parts

GUEST, HOST, HOST_2, ARBITER = Party("guest", "1"), Party("host", "2"), Party("host", "3"), Party("arbiter", "4")


def breast():
    """Return the scaled features (rows, 30) and the labels."""
    matrix, y = load_breast_cancer(return_X_y=True)
    return StandardScaler().fit_transform(matrix), y


def frame(matrix, y=None, *, first=0):
    """Return rows as a frame, with features x0, x1, ... from `first` on."""
    ids = np.array([f"id{at}" for at in range(len(matrix))], dtype=object)
    columns = {} if y is None else {"y": y}
    columns |= {f"x{first + at}": matrix[:, at] for at in range(matrix.shape[1])}
    return PartyFrame(ids, columns, label="" if y is None else "y")


def run_against(module, here, given, sent):
    """Run one part, whose other parts have sent the values of `sent`, by part and name, and nothing else."""
    exchange = PartExchange()
    for (source, name), value in sent.items():
        exchange.put(SentValue(name, source, here, encode(value)))
    parties: dict[str, list[str]] = {}
    for party in dict.fromkeys([here, *(source for source, _ in sent)]):
        parties.setdefault(party.role, []).append(party.id)
    part = ComponentPart(
        here=here,
        parties=parties,
        job="job",
        component="component_0",
        module=module,
        parameters=given.parameters,
        channel=exchange.channel(here),
        tracker=PartRecord(),
        data=given.data,
        models=given.models,
    )
    return component(module)(part)


def run_alone(module, rows, model=None, **parameters):
    """Run a component at the guest alone; return its output."""
    models = {"model": {"m": model}} if model is not None else {}
    return run_parts(module, {GUEST: PartInputs(parameters, {"data": [rows]}, models)}).outputs[GUEST]
