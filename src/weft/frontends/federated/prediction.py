"""The files of a prediction, made from those of the training job: the DSL without what only trains, and the conf.

Source: FATE 1.5 to 1.11, `doc/dsl_conf_v1_setting_guide`, `dsl_conf_v2_setting_guide` and the answers of its server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from weft.frontends.federated.conf import version_of
from weft.frontends.federated.expansion import merged
from weft.frontends.federated.schema import ARGS, PIPELINE, PREDICT, READER
from weft.model.errors import NotFoundError, UsageError
from weft.model.suggestions import did_you_mean

_NOT_DEPLOYED: Final = frozenset(
    {
        "DataStatistics",
        "Evaluation",
        "FederatedSample",
        "HeteroDataSplit",
        "HeteroPearson",
        "HomoDataSplit",
        "PSI",
        "SampleWeight",
    }
)
"""The modules that a prediction leaves out unless they are named: they choose rows, or tell about them."""
_ROWS: Final = ("train_data", "test_data", "eval_data", "validate_data")
"""The data inputs of a component that learns, the first that it has feeds a prediction."""
_ONE_RUN: Final = ("inheritance_info", "run_only", "run_to", "trigger_rules")
"""The job parameters of a training job that do not hold for a prediction."""


def prediction_dsl(dsl: Mapping[str, Any], components: Sequence[str] = (), *, readers: bool = True) -> dict[str, Any]:
    """Return the DSL of predictions of a training job. Both are JSON as in the files.

    `components` are those to keep, and with `readers` readers beside them; without names all that can predict. The
    input of a component that is kept from one that is not comes from the data input of that one; without a reader
    there, it is open. NotFoundError: there is no such component.
    """
    listed: Mapping[str, Mapping[str, Any]] = dsl.get("components") or {}
    for name in components:
        if name not in listed:
            hint = did_you_mean(name, listed, f"It has {', '.join(listed)}.")
            raise NotFoundError(f"the model has no component {name!r}", hint=hint)
    kept = {name for name, one in listed.items() if _is_kept(name, one, components, readers=readers)}
    found = {name: _component(name, listed, kept) for name in listed if name in kept}
    return {**{key: value for key, value in dsl.items() if key != "components"}, "components": found}


def takes_models(dsl: Mapping[str, Any]) -> bool:
    """Whether a component of a DSL, as JSON, takes its model from a training job."""
    listed = dsl.get("components")
    inputs = (
        [one.get("input") for one in listed.values() if isinstance(one, Mapping)] if isinstance(listed, Mapping) else []
    )
    models = [one.get("model") for one in inputs if isinstance(one, Mapping)]
    return any(str(one).startswith(f"{PIPELINE}.") for each in models if isinstance(each, list) for one in each)


def _is_kept(name: str, one: Mapping[str, Any], components: Sequence[str], *, readers: bool) -> bool:
    if name in components or (one.get("module") == READER and (readers or not components)):
        return True
    return not components and one.get("need_deploy", one.get("module") not in _NOT_DEPLOYED) is not False


def _component(name: str, listed: Mapping[str, Mapping[str, Any]], kept: set[str]) -> dict[str, Any]:
    one = listed[name]
    found = {key: deepcopy(value) for key, value in one.items() if key not in ("input", "output", "need_deploy")}
    given, made = one.get("input") or {}, one.get("output") or {}
    inputs: dict[str, Any] = {}
    if data := _data(given.get("data") or {}, listed, kept):
        inputs["data"] = data
    if models := made.get("model"):
        inputs["model"] = [f"{PIPELINE}.{name}.{models[0]}"]
    elif models := given.get("model"):
        inputs["model"] = [one if one.startswith(f"{PIPELINE}.") else f"{PIPELINE}.{one}" for one in models]
    if inputs:
        found["input"] = inputs
    if "data" in made:
        found["output"] = {"data": list(made["data"])}
    return found


def _data(
    given: Mapping[str, Sequence[str]], listed: Mapping[str, Mapping[str, Any]], kept: set[str]
) -> dict[str, list[str]]:
    """Return the data inputs of a prediction: those of rows to learn from become `test_data`."""
    found: dict[str, list[str]] = {}
    for key, sources in given.items():
        if key not in _ROWS:
            found[key] = [_source(one, listed, kept) for one in sources]
    learns = next((key for key in _ROWS if given.get(key)), "")
    if learns:
        found["test_data"] = [_source(one, listed, kept) for one in given[learns]]
    named = ((key, list(filter(None, sources))) for key, sources in found.items())
    return {key: sources for key, sources in named if sources}


def _source(source: str, listed: Mapping[str, Mapping[str, Any]], kept: set[str]) -> str:
    """Return where data come from if some components are left out; "" if from a reader that is."""
    for _ in range(len(listed) + 1):
        name = source.partition(".")[0]
        if name == ARGS:
            return f"{ARGS}.eval_data"
        if name in kept or name not in listed:
            return source
        if listed[name].get("module") == READER:
            return ""
        above = (listed[name].get("input") or {}).get("data") or {}
        key = next((key for key in ("data", *_ROWS, *above) if above.get(key)), None)
        if key is None:
            break
        source = above[key][0]
    raise UsageError(
        f"the data of a prediction cannot come from {source}, which is not deployed", hint="Deploy this component, too."
    )


def prediction_conf(
    conf: Mapping[str, Any], dsl: Mapping[str, Any], *, model_id: str, model_version: str
) -> dict[str, Any]:
    """Return a conf for predictions with the DSL `dsl`, by that of the training job, with the tables to fill in."""
    found = {key: deepcopy(conf[key]) for key in ("dsl_version", "initiator", "role") if key in conf}
    own = {"job_type": PREDICT, "model_id": model_id, "model_version": model_version}
    found["job_parameters"] = {"common": own} if version_of(conf) == 2 else own
    roles: dict[str, Any] = {}
    readers = [name for name, one in dsl["components"].items() if one.get("module") == READER]
    for role, ids in (conf.get("role") or {}).items():
        if role not in ("guest", "host"):
            continue
        tables = [_table(f"{role}_{at}") for at in range(len(ids))]
        if version_of(conf) == 2:
            roles[role] = {str(at): {name: {"table": tables[at]} for name in readers} for at in range(len(ids))}
        else:
            roles[role] = {ARGS: {"data": {"eval_data": tables}}}
    found |= {"component_parameters": {"role": roles}} if version_of(conf) == 2 else {"role_parameters": roles}
    return found


def _table(which: str) -> dict[str, str]:
    return {"name": f"name_to_be_filled_{which}", "namespace": f"namespace_to_be_filled_{which}"}


def merged_conf(trained: Mapping[str, Any], conf: Mapping[str, Any], dsl: Mapping[str, Any]) -> dict[str, Any]:
    """Return the conf of a prediction: that of the training job, and over it what `conf` says.

    Parameters of components that `dsl` does not have are left out. UsageError: the two differ in their version.
    """
    if version_of(trained) != version_of(conf):
        raise UsageError(
            f"the conf has dsl_version {version_of(conf)}, and that of the model has {version_of(trained)}",
            hint=f"Set dsl_version to {version_of(trained)}.",
        )
    base = deepcopy(dict(trained))
    jobs = base.get("job_parameters") or {}
    for place in (jobs, jobs.get("common") or {}):
        for name in _ONE_RUN:
            place.pop(name, None)
    names = set(dsl.get("components") or {})
    if version_of(conf) == 2:
        _keep(base.get("component_parameters") or {}, names)
    else:
        _only(base.get("algorithm_parameters") or {}, names)
        for own in (base.get("role_parameters") or {}).values():
            own.pop(ARGS, None)
            _only(own, names)
    return merged(base, conf)


def _keep(parameters: dict[str, Any], names: set[str]) -> None:
    _only(parameters.get("common") or {}, names)
    for by_index in (parameters.get("role") or {}).values():
        for own in by_index.values():
            _only(own, names)


def _only(own: dict[str, Any], names: set[str]) -> None:
    for name in [one for one in own if one not in names]:
        del own[name]
