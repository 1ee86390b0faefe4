# Written by `python -m weft.tensor.stubs` from the registry.
# fmt: off
from weft.frontends.tensors.arrays.fft import fft, fft2, fftfreq, fftn, fftshift, hfft, ifft, ifft2, ifftn, ifftshift
from weft.frontends.tensors.arrays.fft import ihfft, irfft, irfft2, irfftn, rfft, rfft2, rfftfreq, rfftn
__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft", "irfft",
    "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]
