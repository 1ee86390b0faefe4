"""The graph of a run in the language of Mermaid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.model.masking import without_passwords
from weft.model.wording import clean
from weft.runs.reports.markup import cut

if TYPE_CHECKING:
    from weft.runs.reports.drawn import DrawnBox, DrawnGraph

_CLASSES: Final = {
    "succeeded": "fill:#e3f2e8,stroke:#2c7a4b,color:#12331f",
    "failed": "fill:#fbe4e1,stroke:#b3362b,color:#4a120c",
    "running": "fill:#e1eafa,stroke:#2f5fb3,color:#10264d",
    "terminated": "fill:#fbf0d9,stroke:#96680b,color:#3d2a04",
    "interrupted": "fill:#fbf0d9,stroke:#96680b,color:#3d2a04",
    "cancelled": "fill:#f1f2f3,stroke:#8a929b,color:#30363c",
    "skipped": "fill:#f1f2f3,stroke:#8a929b,color:#30363c,stroke-dasharray:4 3",
    "pending": "fill:#ffffff,stroke:#8a929b,color:#30363c",
}
_PLAIN: Final = frozenset(" -_.,:/()*+=%…")
_LONGEST: Final = 80


def mermaid_graph(graph: DrawnGraph) -> str:
    """Return a flowchart of a graph, from above to below; the class of each vertex is its state."""
    lines = ["flowchart TD"]
    lines += [f'  v{at}["{_label(box)}"]:::{_class(box.state)}' for at, box in enumerate(graph.boxes)]
    lines += [f"  v{src} {'-.->' if order else '-->'} v{dst}" for src, dst, order in graph.edges]
    used = dict.fromkeys(_class(box.state) for box in graph.boxes)
    lines += [f"  classDef {name} {_CLASSES[name]}" for name in used]
    return "\n".join(lines) + "\n"


def _class(state: str) -> str:
    return state if state in _CLASSES else "running" if state == "terminating" else "pending"


def _label(box: DrawnBox) -> str:
    state = box.state if box.members == 1 and box.state not in box.note else ""
    parts = [box.name, state if box.members == 1 else f"{box.members:,} vertices", box.note]
    return "<br/>".join(_escaped(cut(part, _LONGEST)) for part in parts if part)


def _escaped(value: str) -> str:
    """Return a text in which all but letters, digits and harmless signs are numbers of characters."""
    shown = clean(without_passwords(value)).replace("\n", " ")
    return "".join(c if c.isalnum() or c in _PLAIN else f"#{ord(c)};" for c in shown if c.isprintable())
