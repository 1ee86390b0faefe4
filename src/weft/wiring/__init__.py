"""The composition root: the only package that names concrete classes.

Programs use `Session`: a backend, a store and their folders, made and closed together. The command line uses
`load_pipeline` and `run_pipeline`. Names are loaded at their first use, so that programs without pipelines start
sooner.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.frontends.pipelines.loading import load_pipeline as load_pipeline
    from weft.frontends.pipelines.loading import load_text as load_text
    from weft.frontends.pipelines.options import Caching as Caching
    from weft.frontends.pipelines.options import Surroundings as Surroundings
    from weft.frontends.pipelines.reading import layered as layered
    from weft.frontends.pipelines.reading import profile_of as profile_of
    from weft.frontends.pipelines.source import Loaded as Loaded
    from weft.wiring.concrete import BACKENDS as BACKENDS
    from weft.wiring.concrete import MANAGERS as MANAGERS
    from weft.wiring.concrete import driver_lives as driver_lives
    from weft.wiring.concrete import eviction_key as eviction_key
    from weft.wiring.concrete import is_job_file as is_job_file
    from weft.wiring.concrete import load_jobs as load_jobs
    from weft.wiring.concrete import local_cluster as local_cluster
    from weft.wiring.concrete import make_backend as make_backend
    from weft.wiring.concrete import make_ready as make_ready
    from weft.wiring.concrete import order_driver as order_driver
    from weft.wiring.concrete import plan_federated as plan_federated
    from weft.wiring.concrete import session_folders as session_folders
    from weft.wiring.concrete import source_again as source_again
    from weft.wiring.concrete import source_of_jobs as source_of_jobs
    from weft.wiring.concrete import start_driver as start_driver
    from weft.wiring.foreground import resume_run as resume_run
    from weft.wiring.foreground import run_pipeline as run_pipeline
    from weft.wiring.foreground import run_sweep as run_sweep
    from weft.wiring.session import Session as Session

_HOMES = {
    "weft.frontends.pipelines.options": (
        "Caching",
        "Surroundings",
    ),
    "weft.wiring.concrete": (
        "BACKENDS",
        "MANAGERS",
        "driver_lives",
        "eviction_key",
        "is_job_file",
        "load_jobs",
        "local_cluster",
        "make_backend",
        "make_ready",
        "order_driver",
        "plan_federated",
        "session_folders",
        "source_again",
        "source_of_jobs",
        "start_driver",
    ),
    "weft.frontends.pipelines.reading": (
        "layered",
        "profile_of",
    ),
    "weft.frontends.pipelines.source": ("Loaded",),
    "weft.frontends.pipelines.loading": (
        "load_pipeline",
        "load_text",
    ),
    "weft.wiring.foreground": (
        "resume_run",
        "run_pipeline",
        "run_sweep",
    ),
    "weft.wiring.session": ("Session",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    try:
        module = _HOME[name]
    except KeyError:
        raise AttributeError(f"module 'weft.wiring' has no attribute {name!r}") from None
    value = globals()[name] = getattr(import_module(module), name)
    return value
