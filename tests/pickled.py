"""The modules of Weft that a pickle names."""

import io
import pickletools


def weft_modules_in(data: bytes, pickles: int = 1) -> set[str]:
    """Return the modules of Weft named by the first `pickles` pickles in `data`, by themselves or before a class."""
    file = io.BytesIO(data)
    texts = [arg for _ in range(pickles) for _, arg, _ in pickletools.genops(file) if isinstance(arg, str)]
    return {text.partition(":")[0] for text in texts if text.startswith("weft.")}
