"""How the functions of `scipy.special`, `stats` and `spatial.distance` are called.

The roles are those of `calls`, and more.
"""

from typing import Any

import numpy as np

from tests.properties.tensors.calls import Drawn, next_to, role

STATS = """
circmean circstd circvar gmean gstd hmean iqr kurtosis moment sem skew variation: sample axis=axis_or_none?
jarque_bera kurtosistest normaltest skewtest mode describe zscore gzscore: sample axis=axis_or_none?
median_abs_deviation rankdata differential_entropy lmoment: sample axis=axis_or_none?
entropy: sample axis?
tmean tmax tmin tstd tsem tvar: sample axis=axis_or_none? nan_policy?
expectile kstat kstatvar shapiro sigmaclip tiecorrect: numbers
boxcox yeojohnson bayes_mvs cumfreq relfreq: counted
pmean: counted power=power?
trim_mean trimboth trim1: sample cut
scoreatpercentile: numbers percent
percentileofscore: numbers number
quantile: numbers probability
quantile_test: numbers
directional_stats: points
ansari brunnermunzel kendalltau linregress mannwhitneyu mood pearsonr pointbiserialr ranksums: numbers paired
siegelslopes spearmanr theilslopes ttest_ind ttest_rel weightedtau wilcoxon: numbers paired
energy_distance wasserstein_distance ks_2samp cramervonmises_2samp epps_singleton_2samp: numbers paired
chatterjeexi zmap binned_statistic somersd: numbers paired
ttest_1samp: sample number axis=axis_or_none?
cramervonmises kstest ks_1samp: numbers distribution
boxcox_llf yeojohnson_llf: number counted
boxcox_normmax yeojohnson_normmax: counted
alexandergovern bartlett f_oneway fligner kruskal levene median_test tukey_hsd: numbers numbers numbers
friedmanchisquare: numbers paired paired
anderson_ksamp: samples
chisquare power_divergence: counted
chi2_contingency fisher_exact: contingency
binomtest: trials trials
combine_pvalues false_discovery_control: probabilities
poisson_means_test: trials trials trials trials
ttest_ind_from_stats: number number trials number number trials
wasserstein_distance_nd: points points
"""

DISTANCES = """
braycurtis canberra chebyshev cityblock correlation cosine euclidean sqeuclidean jensenshannon minkowski: numbers paired
hamming: numbers paired
dice jaccard rogerstanimoto russellrao sokalsneath yule: booleans booleans
seuclidean: numbers paired variances
mahalanobis: numbers paired identity_of
cdist directed_hausdorff: points points
pdist: points metric=metric?
squareform is_valid_y num_obs_y: numbers
is_valid_dm num_obs_dm: distances
"""


@role
def small(d: Drawn) -> Any:
    """Numbers around 0: of others, some functions of SciPy 1.17 with several inputs read memory that is not theirs."""
    return _small(d, d.size())


@role
def small_y(d: Drawn) -> Any:
    return _small(d, next_to(d, d.x.shape))


@role
def ones_(d: Drawn) -> Any:
    return np.ones(d.size(), d.rng.choice(["int8", "float32", "float64"]))


@role
def twos(d: Drawn) -> Any:
    return np.full(next_to(d, d.x.shape), 2.0)


@role
def halves(d: Drawn) -> Any:
    return np.full(next_to(d, d.x.shape), 0.5)


def _small(d: Drawn, size: tuple[int, ...]) -> Any:
    found = d.new(size, ["int8", "float32", "float64"], special=False)
    return np.asarray(np.clip(found, -6, 6), found.dtype)


@role
def sample(d: Drawn) -> Any:
    """Positive and other numbers, seldom too few for the statistic."""
    found = d.new(d.size(1, 2), ["float32", "float64", "int8", "int64"])
    return found if d.rng.random() < 0.5 or found.dtype.kind == "i" else np.abs(found)


@role
def numbers(d: Drawn) -> Any:
    return d.new((d.rng.randint(0, 3) if d.wrong() else d.rng.randint(5, 20),), ["float64", "int8", "float32"])


@role
def paired(d: Drawn) -> Any:
    """As many numbers as in the first array."""
    return d.new((len(d.x) + d.wrong(),), ["float64", "int8"])


@role
def counted(d: Drawn) -> Any:
    """Positive numbers, seldom others."""
    found = numbers(d)
    return found if d.wrong() else np.nan_to_num(np.abs(found.astype("float64"))) + 1


@role
def booleans(d: Drawn) -> Any:
    return d.new((4 + d.wrong(),), ["bool"])


@role
def points(d: Drawn) -> Any:
    return d.new((d.rng.randint(1, 6), 3 + d.wrong()), ["float64", "int8"], special=False)


@role
def distances(d: Drawn) -> Any:
    found = np.abs(d.new((4, 4), ["float64"], special=False))
    return found if d.wrong() else found + found.T - 2 * np.diag(np.diag(found))


@role
def variances(d: Drawn) -> Any:
    return np.ones(len(d.x))


@role
def identity_of(d: Drawn) -> Any:
    return np.eye(len(d.x))


@role
def metric(d: Drawn) -> Any:
    return d.rng.choice(["euclidean", "cosine", "odd"])


@role
def contingency(d: Drawn) -> Any:
    return np.array([[d.rng.randint(0, 9) for _ in range(2)] for _ in range(2)])


@role
def samples(d: Drawn) -> Any:
    return [numbers(d), numbers(d)]


@role
def trials(d: Drawn) -> Any:
    return d.rng.choice([0, 3, 9, -1, 2.5] if d.wrong() else [2, 3, 9])


@role
def probabilities(d: Drawn) -> Any:
    return np.array([d.rng.random() * (1 + d.wrong()) for _ in range(d.rng.randint(1, 5))])


@role
def probability(d: Drawn) -> Any:
    return d.rng.choice([0.0, 0.5, 1.0, 0.3])


@role
def cut(d: Drawn) -> Any:
    return d.rng.choice([0, 0.1, 0.4, 0.6, -0.1] if d.wrong() else [0, 0.1, 0.4])


@role
def nan_policy(d: Drawn) -> Any:
    return d.rng.choice(["omit", "propagate", "raise", "odd"])


@role
def distribution(d: Drawn) -> Any:
    return d.rng.choice(["norm", "expon", "odd"] if d.wrong() else ["norm", "expon"])
