"""Discrete Fourier transforms."""

from weft.frontends.tensors.arrays.fft import *  # noqa: F403
from weft.frontends.tensors.arrays.fft import __all__ as __all__
