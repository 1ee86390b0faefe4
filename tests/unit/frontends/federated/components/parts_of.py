"""Parties and rows for tests of components: the breast cancer data of scikit-learn."""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler

from weft.frontends.federated.components.frame import PartyFrame
from weft.frontends.federated.schema import Party

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
