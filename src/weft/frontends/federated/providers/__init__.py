"""Programs that run in environments of their own, with libraries that do not fit those of Weft."""

from __future__ import annotations

from pathlib import Path
from typing import Final

SPU_PROGRAMS: Final = Path(__file__).parent / "spu_programs.py"
