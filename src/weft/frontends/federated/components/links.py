"""From scores to probabilities: the sigmoid, the softmax, and classes that are trained one against the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def sigmoid(scores: Array) -> Array:
    """Return the logistic function of scores, of the same shape."""
    found: Array = 1.0 / (1.0 + np.exp(-np.clip(scores, -500, 500)))
    return found


def softmax(scores: Array) -> Array:
    """Return the softmax of each row."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    found: Array = powers / powers.sum(axis=1, keepdims=True)
    return found


def one_against_rest(scores: Sequence[Array]) -> Array:
    """Return probabilities of shape (rows, classes), by the scores of each class against the rest.

    A single array has the scores of the second one of two classes.
    """
    if len(scores) == 1:
        second = sigmoid(scores[0])
        return np.column_stack([1 - second, second])
    each = np.column_stack([sigmoid(one) for one in scores])
    found: Array = each / each.sum(axis=1, keepdims=True)
    return found
