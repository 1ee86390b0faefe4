"""What the values that parts send to each other are, in words, by the names under which components send them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_COMMON: Final[Mapping[str, str]] = {
    "batches": "the number of batches",
    "engine": "which version of SPU it has",
    "features": "names of columns",
    "goes_on": "how many rounds the model of an earlier training has had",
    "folds": "which rows validate each fold, by position",
    "key": "a public key",
    "mask_key": "public keys of masks",
    "models": "the number of models",
    "rows": "the number of rows",
    "settings": "settings, to compare them",
    "other": "values of further kinds",
}
_VALIDATION: Final = {
    "best": "which epoch was the best",
    "halts": "whether validation ends the training",
    "validation": "which epochs are validated",
}
_LINEAR: Final = {
    **_VALIDATION,
    "apart": "how far weights have moved",
    "columns": "anonymous names of columns",
    "factors": "factors of the next step",
    "power": "a scale of steps",
    "product": "encrypted inner products of steps and gradients",
    "products": "encrypted inner products of steps and gradients",
    "sample": "positions of sampled rows",
    "end": "the loss of an epoch, and whether it was the last",
    "gradient": "encrypted gradients under a random mask",
    "loss": "the encrypted loss",
    "moved": "how far weights have moved",
    "plain": "gradients under the random mask of their receiver",
    "residual": "encrypted residuals of rows",
    "score": "scores of rows",
    "share": "encrypted shares of residuals",
    "squares": "encrypted sums of squares",
    "step": "which columns a candidate has",
}
_TREES: Final = {
    "answer": "which rows go left at own splits",
    "ask": "rows that reach a split",
    "choose": "splits that were chosen",
    "kept": "how many splits are kept",
    "level": "rows of nodes, and which sums are asked for",
    "sides": "which rows a split divides",
    "sums": "encrypted sums of bins",
    "tree": "encrypted gradients of rows",
}
_MASKED: Final = {
    "binned": "names of columns with bins",
    "chosen": "which columns a tree uses",
    "converged": "whether the training has ended",
    "covered": "numbers under masks",
    "end": "whether the training has ended",
    "labels": "the labels that occur",
    "split": "splits of nodes",
    "start": "first weights",
    "total": "sums of numbers of all parties",
}
_INTERSECTION: Final = {
    "blinded": "blinded hashes of ids",
    "count": "the number of common rows",
    "ids": "plain hashes of ids, which can be guessed",
    "modulus": "a public key",
    "points": "blinded hashes of ids",
    "raise": "blinded hashes of ids of others",
    "raised": "blinded hashes of ids of others",
    "rows": "positions of common rows",
    "shows": "whether its policy shows ids",
    "signed": "signed blinded hashes of ids",
    "tags": "hashes of twice blinded ids",
    "tunnel": "messages of SPU, which intersects blinded ids",
}
_SHARED: Final = {
    **_VALIDATION,
    "converged": "whether the training has ended",
    "end": "the loss of an epoch, and whether it was the last",
    "features": "the number of columns",
    "gradient": "shares of gradients",
    "loss": "shares of the loss",
    "moved": "how far weights have moved, as shares",
    "product": "encrypted products under a random mask",
    "score": "scores of rows",
    "scores": "encrypted scores of rows",
    "shares": "encrypted shares",
    "start": "shares of first weights",
    "tunnel": "messages of SPU, which computes on shares",
    "weights": "shares of weights",
}
_BINNING: Final = {
    "labels": "encrypted labels",
    "merged": "which fine bins are merged",
    "plan": "how many classes there are",
    "sums": "encrypted sums of bins, under anonymous names",
}
_TRANSFER: Final = {
    **_INTERSECTION,
    "end": "whether the training has ended",
    "hidden": "encrypted sums under random masks",
    "linear": "encrypted sums of outputs and labels by row",
    "numbers": "sums of outputs and labels, and outputs of its network by row",
    "outputs": "outputs of its network by row, encrypted with mode encrypted",
    "plan": "how the training runs",
    "shown": "sums under random masks of their receiver",
    "square": "encrypted sums of products of outputs",
}
_NETWORKS: Final = {
    **_VALIDATION,
    "back": "encrypted gradients by outputs",
    "end": "whether the training has ended",
    "gradient": "encrypted gradients of weights under a random mask",
    "noise": "encrypted noise that hides weights",
    "noisy": "gradients of weights with noise",
    "outputs": "encrypted outputs of its network",
    "products": "encrypted products of outputs and weights under a random mask",
    "schedule": "how the training runs",
    "shown": "products of outputs and weights with noise, under the random mask of their receiver",
    "spread": "whether first weights differ",
    "width": "the number of outputs of its network",
}
_RETRIEVAL: Final = {
    **_INTERSECTION,
    "block": "positions of rows, those asked for and others",
    "choice": "a blinded choice of a block",
    "offer": "a public key of the transfer",
    "plan": "names of columns, and the number of blocks",
    "values": "encrypted values of blocks, of which one can be opened",
}
_ROWS: Final = {"rows_chosen": "positions of the chosen rows"}
_OF_MODULES: Final[Mapping[str, Mapping[str, str]]] = {
    "FTL": _TRANSFER,
    "FederatedSample": _ROWS,
    "FeldmanVerifiableSum": {
        **_INTERSECTION,
        "columns": "the number of columns, to compare it",
        "commitments": "commitments to numbers",
        "share": "shares of numbers",
        "sum": "sums of shares",
    },
    "HeteroDataSplit": _ROWS,
    "HeteroFastSecureBoost": _TREES,
    "HeteroFeatureBinning": _BINNING,
    "HeteroFeatureSelection": {
        "filters": "which filters there are",
        "left": "which features stay",
        "names": "anonymous names of features",
    }
    | _BINNING,
    "HeteroKmeans": {
        "covered": "distances of rows under masks",
        "first_rows": "positions of the first centres",
        "nearest": "the cluster of each row",
        "settled": "whether the centres have settled",
        "spread": "that the clusters were judged",
    },
    "HeteroLR": _LINEAR,
    "HeteroLinR": _LINEAR,
    "HeteroNN": _NETWORKS,
    "HeteroPearson": {
        "columns": "encrypted columns",
        "correlations": "correlations of columns",
        "plan": "anonymous names of columns",
        "products": "encrypted products of columns",
    },
    "HeteroPoisson": _LINEAR,
    "HeteroSSHELR": _SHARED,
    "HeteroSSHELinR": _SHARED,
    "HeteroSecureBoost": _TREES,
    "HomoFeatureBinning": _MASKED,
    "HomoLR": _MASKED,
    "HomoNN": _MASKED,
    "HomoOneHotEncoder": {"values": "the values of columns"},
    "HomoSecureBoost": _MASKED,
    "HomoSecureboost": _MASKED,
    "Intersection": _INTERSECTION,
    "SBTFeatureTransformer": _TREES,
    "SecureInformationRetrieval": _RETRIEVAL,
    "SecureAddExample": {"share": "shares of numbers", "sum": "sums of shares"},
}


def message_words(module: str, kind: str, *, plain: bool = False) -> str:
    """Return what the values of a kind are that a module sends; its name if there are no words for it.

    With `plain` the job has asked for no encryption.
    """
    words = _OF_MODULES.get(module, {}).get(kind) or _COMMON.get(kind) or kind.replace("_", " ")
    return words.replace("encrypted", "unencrypted") if plain else words
