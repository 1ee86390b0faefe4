"""The words for what components send are complete."""

import re
from pathlib import Path

import pytest

from weft.frontends.federated import components
from weft.frontends.federated.components.messages import _COMMON, _OF_MODULES, message_words
from weft.frontends.federated.components.registry import COMPONENTS

FOLDER = Path(components.__file__).parent
SENDS = (
    r'(?:\._?send|\.send_encrypted|\.same|\.squares|_name|common_values)\((?:[\w.]+, )?f?"([a-z_]+)'
    r'|, name = .*f"([a-z_]+)'
)
LINEAR = ("HeteroLR", "HeteroLinR", "HeteroPoisson")
TREES = ("HeteroFastSecureBoost", "HeteroSecureBoost")
BINNING = ("HeteroFeatureBinning", "HeteroFeatureSelection")
SHARED = ("HeteroSSHELR", "HeteroSSHELinR")
NETWORKS = ("HeteroNN",)
MASKED = ("HomoFeatureBinning", "HomoLR", "HomoNN", "HomoSecureBoost")
MODULES = {
    "cross_validation": (*LINEAR, *TREES, *SHARED, "HomoLR", "HomoSecureBoost"),
    "ftl": ("FTL",),
    "feature_selection": ("HeteroFeatureSelection",),
    "hetero_kmeans": ("HeteroKmeans",),
    "hetero_lr": LINEAR,
    "hetero_networks": NETWORKS,
    "hetero_nn": NETWORKS,
    "hetero_pearson": ("HeteroPearson",),
    "hetero_secureboost": TREES,
    "hetero_sshe_lr": SHARED,
    "homo_feature_binning": ("HomoFeatureBinning",),
    "homo_lr": ("HomoLR",),
    "homo_nn": ("HomoNN",),
    "homo_secureboost": ("HomoSecureBoost",),
    "horizontal": MASKED,
    "information_retrieval": ("SecureInformationRetrieval",),
    "interactive": NETWORKS,
    "intersection": ("FTL", "FeldmanVerifiableSum", "Intersection", "SecureInformationRetrieval"),
    "label_counts": BINNING,
    "one_hot_encoder": ("HomoOneHotEncoder",),
    "quasi_newton": ("HeteroLR", "HeteroLinR"),
    "row_choices": ("FederatedSample", "HeteroDataSplit"),
    "secure_add": ("SecureAddExample",),
    "secure_gradients": ("FTL",),
    "secure_trees": TREES,
    "shared_models": SHARED,
    "spu": ("Intersection", *SHARED),
    "spu_models": SHARED,
    "stepwise": ("HeteroLR", "HeteroLinR"),
    "tree_leaves": (*TREES, "SBTFeatureTransformer"),
    "tree_validation": TREES,
    "tunnels": ("Intersection", *SHARED),
    "verifiable_sum": ("FeldmanVerifiableSum",),
    "vertical": LINEAR,
    "vertical_validation": (*LINEAR, *SHARED),
}
"""The modules that send what a file names."""


def sent_by(path):
    return {one or other for one, other in re.findall(SENDS, path.read_text())}


def test_it_is_known_which_modules_send():
    sending = {path.stem for path in FOLDER.glob("*.py") if path.stem != "sockets" and sent_by(path)}
    assert sending == set(MODULES)
    assert "best" in sent_by(FOLDER / "vertical_validation.py")


@pytest.mark.parametrize("file", sorted(MODULES))
def test_all_that_components_send_has_words(file):
    for module in MODULES[file]:
        known = {*_COMMON, *_OF_MODULES[module]}
        assert sent_by(FOLDER / f"{file}.py") - known == set()


def test_words_belong_to_modules_that_exist():
    assert set(_OF_MODULES) <= set(COMPONENTS)


@pytest.mark.parametrize("module", sorted(set(COMPONENTS) & set(_OF_MODULES)))
def test_each_module_says_what_it_sends(module):
    for kind in _OF_MODULES[module]:
        assert message_words(module, kind) != kind.replace("_", " ")


def test_words_tell_what_is_not_encrypted():
    assert message_words("HeteroLR", "residual") == "encrypted residuals of rows"
    assert message_words("HeteroLR", "residual", plain=True) == "unencrypted residuals of rows"
    assert message_words("Unknown", "some_kind") == "some kind"
