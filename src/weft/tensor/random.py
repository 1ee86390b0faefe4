"""Random arrays: generators with a seed, and functions of one that all share."""

from weft.frontends.tensors.arrays.random import (
    Generator as Generator,
)
from weft.frontends.tensors.arrays.random import (
    RandomState as RandomState,
)
from weft.frontends.tensors.arrays.random import (
    beta as beta,
)
from weft.frontends.tensors.arrays.random import (
    binomial as binomial,
)
from weft.frontends.tensors.arrays.random import (
    bytes as bytes,
)
from weft.frontends.tensors.arrays.random import (
    chisquare as chisquare,
)
from weft.frontends.tensors.arrays.random import (
    choice as choice,
)
from weft.frontends.tensors.arrays.random import (
    default_rng as default_rng,
)
from weft.frontends.tensors.arrays.random import (
    dirichlet as dirichlet,
)
from weft.frontends.tensors.arrays.random import (
    exponential as exponential,
)
from weft.frontends.tensors.arrays.random import (
    f as f,
)
from weft.frontends.tensors.arrays.random import (
    gamma as gamma,
)
from weft.frontends.tensors.arrays.random import (
    geometric as geometric,
)
from weft.frontends.tensors.arrays.random import (
    gumbel as gumbel,
)
from weft.frontends.tensors.arrays.random import (
    hypergeometric as hypergeometric,
)
from weft.frontends.tensors.arrays.random import (
    laplace as laplace,
)
from weft.frontends.tensors.arrays.random import (
    logistic as logistic,
)
from weft.frontends.tensors.arrays.random import (
    lognormal as lognormal,
)
from weft.frontends.tensors.arrays.random import (
    logseries as logseries,
)
from weft.frontends.tensors.arrays.random import (
    multinomial as multinomial,
)
from weft.frontends.tensors.arrays.random import (
    multivariate_normal as multivariate_normal,
)
from weft.frontends.tensors.arrays.random import (
    negative_binomial as negative_binomial,
)
from weft.frontends.tensors.arrays.random import (
    noncentral_chisquare as noncentral_chisquare,
)
from weft.frontends.tensors.arrays.random import (
    noncentral_f as noncentral_f,
)
from weft.frontends.tensors.arrays.random import (
    normal as normal,
)
from weft.frontends.tensors.arrays.random import (
    pareto as pareto,
)
from weft.frontends.tensors.arrays.random import (
    permutation as permutation,
)
from weft.frontends.tensors.arrays.random import (
    poisson as poisson,
)
from weft.frontends.tensors.arrays.random import (
    power as power,
)
from weft.frontends.tensors.arrays.random import (
    rand as rand,
)
from weft.frontends.tensors.arrays.random import (
    randint as randint,
)
from weft.frontends.tensors.arrays.random import (
    randn as randn,
)
from weft.frontends.tensors.arrays.random import (
    random as random,
)
from weft.frontends.tensors.arrays.random import (
    random_integers as random_integers,
)
from weft.frontends.tensors.arrays.random import (
    random_sample as random_sample,
)
from weft.frontends.tensors.arrays.random import (
    ranf as ranf,
)
from weft.frontends.tensors.arrays.random import (
    rayleigh as rayleigh,
)
from weft.frontends.tensors.arrays.random import (
    sample as sample,
)
from weft.frontends.tensors.arrays.random import (
    seed as seed,
)
from weft.frontends.tensors.arrays.random import (
    shuffle as shuffle,
)
from weft.frontends.tensors.arrays.random import (
    standard_cauchy as standard_cauchy,
)
from weft.frontends.tensors.arrays.random import (
    standard_exponential as standard_exponential,
)
from weft.frontends.tensors.arrays.random import (
    standard_gamma as standard_gamma,
)
from weft.frontends.tensors.arrays.random import (
    standard_normal as standard_normal,
)
from weft.frontends.tensors.arrays.random import (
    standard_t as standard_t,
)
from weft.frontends.tensors.arrays.random import (
    triangular as triangular,
)
from weft.frontends.tensors.arrays.random import (
    uniform as uniform,
)
from weft.frontends.tensors.arrays.random import (
    vonmises as vonmises,
)
from weft.frontends.tensors.arrays.random import (
    wald as wald,
)
from weft.frontends.tensors.arrays.random import (
    weibull as weibull,
)
from weft.frontends.tensors.arrays.random import (
    zipf as zipf,
)
