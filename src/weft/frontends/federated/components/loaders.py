"""ModelLoader and CacheLoader: what an earlier job has made, for the components of this one. Nothing is sent.

The server of each party finds its own part of the model by `model_version` and `component_name`.
"""

from __future__ import annotations

from weft.frontends.federated.components.base import GUEST, HOST, ComponentPart, PartOutput
from weft.model.errors import UsageError


def run(part: ComponentPart) -> PartOutput:
    """Pass on the model of an earlier job. UsageError: it is not here, or one of its steps is asked for."""
    for name in ("step_index", "step_name"):
        if part.parameters.get(name) is not None:
            raise UsageError(
                f"{part.component}: {name} asks for a model between two steps, and such models are not kept",
                hint="Leave it out to load the model of the whole training.",
            )
    model = next(iter(part.models.get("model", {}).values()), None)
    if model:
        return PartOutput(model=model)
    if part.here.role in (GUEST, HOST):
        version, component = (part.parameters.get(name) for name in ("model_version", "component_name"))
        raise UsageError(
            f"{part.component}: {part.here} has no model of {component} in version {version}",
            hint="Set model_version to the id of a training job, and component_name to one of its components.",
        )
    return PartOutput()


def run_cache(part: ComponentPart) -> PartOutput:
    """Load nothing: intersections keep no cache, and are computed anew."""
    note = "cache_key has no effect: an Intersection has no cache, and encrypts all ids anew"
    part.tracker.log(note)
    part.tracker.summary({"notes": [note]})
    return PartOutput()
