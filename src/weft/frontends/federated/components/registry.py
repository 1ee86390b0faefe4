"""The components that exist, by the names of FATE's modules."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final

from weft.model.errors import UsageError

if TYPE_CHECKING:
    from weft.frontends.federated.components.base import Run

_HOME: Final = "weft.frontends.federated.components"
COMPONENTS: Final[Mapping[str, str]] = {
    "CacheLoader": "loaders:run_cache",
    "ColumnExpand": "column_expand:run",
    "DataIO": "data_transform:run",
    "DataStatistics": "data_statistics:run",
    "DataTransform": "data_transform:run",
    "Evaluation": "evaluation:run",
    "FTL": "ftl:run",
    "FeatureImputation": "feature_imputation:run",
    "FeatureScale": "feature_scale:run",
    "FederatedSample": "row_choices:sample",
    "FeldmanVerifiableSum": "verifiable_sum:run",
    "HeteroDataSplit": "row_choices:split_hetero",
    "HeteroFastSecureBoost": "hetero_secureboost:run",
    "HeteroFeatureBinning": "feature_binning:run",
    "HeteroFeatureSelection": "feature_selection:run",
    "HeteroKmeans": "hetero_kmeans:run",
    "HeteroLR": "hetero_lr:run",
    "HeteroLinR": "hetero_linr:run",
    "HeteroNN": "hetero_nn:run",
    "HeteroPearson": "hetero_pearson:run",
    "HeteroPoisson": "hetero_linr:run_poisson",
    "HeteroSSHELR": "hetero_sshe_lr:run",
    "HeteroSSHELinR": "hetero_sshe_lr:run_linear",
    "HeteroSecureBoost": "hetero_secureboost:run",
    "HomoDataSplit": "row_choices:split_homo",
    "HomoFeatureBinning": "homo_feature_binning:run",
    "HomoLR": "homo_lr:run",
    "HomoNN": "homo_nn:run",
    "HomoOneHotEncoder": "one_hot_encoder:run_homo",
    "HomoSecureBoost": "homo_secureboost:run",
    "HomoSecureboost": "homo_secureboost:run",
    "Intersection": "intersection:run",
    "LabelTransform": "label_transform:run",
    "LocalBaseline": "local_baseline:run",
    "ModelLoader": "loaders:run",
    "OneHotEncoder": "one_hot_encoder:run",
    "PSI": "psi:run",
    "PositiveUnlabeled": "positive_unlabeled:run",
    "Reader": "reader:run",
    "SBTFeatureTransformer": "tree_features:run",
    "SampleWeight": "sample_weight:run",
    "Scorecard": "scorecard:run",
    "SecureAddExample": "secure_add:run",
    "SecureInformationRetrieval": "information_retrieval:run",
    "Union": "union:run",
}
"""The function of each module, as `module:function` below this package."""
FIRST_PROTOCOL: Final = 1
_PROTOCOLS: Final[Mapping[str, int]] = {"HeteroFastSecureBoost": 3, "HeteroSecureBoost": 3}
"""The versions of messages of modules that have changed them; each change raises its version by one."""


def component(module: str) -> Run:
    """Return the function of a module. UsageError: Weft does not have it yet."""
    target = COMPONENTS.get(module)
    if target is None:
        raise UsageError(no_module(module), hint=f"There are: {', '.join(COMPONENTS)}.")
    name, _, function = target.partition(":")
    run: Run = getattr(import_module(f"{_HOME}.{name}"), function)
    return run


def component_modules() -> list[str]:
    """Return the modules of Python that have components."""
    return sorted({f"{_HOME}.{target.partition(':')[0]}" for target in COMPONENTS.values()})


def protocol_of(module: str) -> int:
    """Return the version of the messages between the parts of a module: parts with different ones do not run."""
    return _PROTOCOLS.get(module, FIRST_PROTOCOL)


def no_module(module: str) -> str:
    """Return that a module does not run, in words."""
    return f"the module {module} does not run on Weft yet"
