"""What the components of jobs have made at this party, read from the folders of their parts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from weft.frontends.federated.components.losses import WARNINGS
from weft.frontends.federated.components.tables import frame_shape, read_frame
from weft.model.errors import NotFoundError
from weft.parties.fate_metrics import fate_metrics, is_single
from weft.parties.http.ports import JobPart, MetricSeries, OutputModel, OutputTable

if TYPE_CHECKING:
    from pathlib import Path

    from weft.frontends.federated.schema import FederatedJob, Party
    from weft.parties.part_folders import PartFolders

_METRICS: Final = "metrics.jsonl"
BINNING: Final = ("HeteroFeatureBinning", "HomoFeatureBinning")
_SUMMARY: Final = "summary.json"
_MOST_METRICS: Final = 64 << 20


class SiteTracking:
    """Reads the folders of parts. `read_job` returns a job, `find_part` the role and the party that a client means."""

    def __init__(
        self, folders: PartFolders, read_job: Callable[[str], FederatedJob], find_part: Callable[[JobPart], Party]
    ) -> None:
        self._folders, self._read_job, self._find_part = folders, read_job, find_part

    # ---------------------------------------------------------------------------------------------------- metrics

    def metric_names(self, part: JobPart) -> Mapping[str, Sequence[str]]:
        """See `PartyTracking.metric_names`."""
        found: dict[str, list[str]] = {}
        for series in self.metrics(part):
            found.setdefault(series.namespace, []).append(series.name)
        return found

    def metrics(self, part: JobPart) -> Sequence[MetricSeries]:
        """See `PartyTracking.metrics`, under the names of FATE."""
        job, here = self._read_job(part.job_id), self._find_part(part)
        component = job.dsl.components.get(part.component)
        if component is None:
            return []
        source = next((one.component for sources in component.data.values() for one in sources), "")
        return fate_metrics(self.series(part.job_id, here, part.component), component.module, source)

    def series(self, job: str, part: Party, component: str) -> list[MetricSeries]:
        """Return the metrics that a component has kept at a part; of one that it kept several times, the last value."""
        folder = self._folders.latest(job, part, component)
        if folder is None:
            return []
        found: dict[tuple[str, str, bool], MetricSeries] = {}  # a figure and a curve may have one name
        for line in read_lines(folder / _METRICS):
            namespace, name = str(line.get("namespace", "")), str(line.get("name", ""))
            single = "points" not in line
            points = [[name, line.get("value")]] if single else line["points"]
            about = {"name": name, "metric_type": line.get("kind", "")}
            found[namespace, name, single] = MetricSeries(
                namespace=namespace, name=name, points=[(one[0], one[1]) for one in points], about=about
            )
        return list(found.values())

    def metric(self, part: JobPart, namespace: str, name: str) -> MetricSeries | None:
        """See `PartyTracking.metric`."""
        return next((one for one in self.metrics(part) if (one.namespace, one.name) == (namespace, name)), None)

    def delete_metrics(self, job_id: str, date: str) -> int:
        """See `PartyTracking.delete_metrics`."""
        root = self._folders.job(job_id) if job_id else self._folders.root
        count = 0
        for file in root.rglob(_METRICS):
            day = datetime.fromtimestamp(file.stat().st_mtime, UTC).strftime("%Y%m%d")
            if not date or day == date:
                count += sum(1 for _ in read_lines(file))
                file.unlink()
        return count

    def figures(self, job: str, part: Party, component: str) -> dict[str, float]:
        """Return the single figures of a component at a part by namespace and name, without what is no number."""
        found: dict[str, float] = {}
        for series in self.series(job, part, component):
            value = series.points[0][1] if is_single(series) else None
            if isinstance(value, (int, float)) and math.isfinite(value):
                found[f"{series.namespace} {series.name}".strip()] = float(value)
        return found

    def confusions(self, job: str, part: Party, component: str) -> list[dict[str, Any]]:
        """Return the confusion matrices of an evaluation: `namespace`, `classes`, `counts` by label and prediction."""
        told = _summary_in(self._folders.latest(job, part, component)).get("confusion")
        return [{"namespace": name, **one} for name, one in told.items()] if isinstance(told, dict) else []

    def warnings(self, job: str, part: Party, component: str) -> list[str]:
        """Return what a component warns of at a part."""
        told = _summary_in(self._folders.latest(job, part, component)).get(WARNINGS)
        return [str(one) for one in told] if isinstance(told, list) else []

    def bins(self, job: str, part: Party, component: str) -> list[dict[str, Any]]:
        """Return the bins of columns that a component has made: one row for each column, party and event.

        `edges` are the upper bounds of bins, None for columns of others, whose bounds are not known here. `bins` has
        for each bin events, non_events, woe and iv, and is empty where no labels are known.
        """
        folder = self._folders.latest(job, part, component)
        model: Any = {}
        with suppress(OSError, ValueError):
            model = json.loads((folder / "model.json").read_text()) if folder is not None else {}
        if not isinstance(model, dict) or model.get("kind") not in BINNING:
            return []
        own = {name: one.get("edges", []) for name, one in model.get("columns", {}).items()}
        results = model.get("results", [])
        labels = model.get("labels", [])
        rows = []
        for at in range(max(1, len(results))):
            event = str(labels[at]) if at < len(labels) else ""
            told = results[at] if results else {}
            rows += [_bin_row(name, str(part), event, edges, told.get(name)) for name, edges in own.items()]
            for other, theirs in model.get("hosts", {}).items():
                rows += [_bin_row(name, f"host {other}", event, None, one) for name, one in theirs[at].items()]
        return sorted(rows, key=lambda row: -(row["iv"] or 0.0))

    # ----------------------------------------------------------------------------------------- parameters, models

    def parameters(self, part: JobPart) -> Mapping[str, Any]:
        """See `PartyTracking.parameters`."""
        job, here = self._read_job(part.job_id), self._find_part(part)
        component = job.dsl.components.get(part.component)
        if component is None:
            raise NotFoundError(f"job {part.job_id} has no component {part.component!r}")
        plan = next((one for one in job.parts if (one.role, one.id) == here), None)
        own = {} if plan is None else dict(plan.components[part.component].parameters)
        return {"module": component.module, "ComponentParam": own}

    def output_model(self, part: JobPart) -> OutputModel | None:
        """See `PartyTracking.output_model`."""
        folder = self._latest(part)
        if folder is None or not (folder / "model.json").is_file():
            return None
        model = json.loads((folder / "model.json").read_text())
        module = self.parameters(part)["module"]
        return OutputModel(parameters=model if isinstance(model, dict) else {"model": model}, about={"module": module})

    def summary(self, part: JobPart) -> Mapping[str, Any]:
        """See `PartyTracking.summary`."""
        return _summary_in(self._latest(part))

    # ------------------------------------------------------------------------------------------------------ tables

    def output_tables(self, part: JobPart) -> Sequence[OutputTable]:
        """See `PartyTracking.output_tables`."""
        job = self._read_job(part.job_id)
        names = [part.component] if part.component else list(job.dsl.order)
        found: list[OutputTable] = []
        for component in names:
            listed = job.dsl.components[component].outputs.get("data", ()) if component in job.dsl.components else ()
            for at, name in enumerate(listed):
                file = self._output(part, component, at)
                if file is None:
                    continue
                rows, columns = frame_shape(file)
                found.append(
                    OutputTable(
                        name=name,
                        table_name=f"{component}.{name}",
                        namespace=part.job_id,
                        header=("sid", *columns),
                        count=rows,
                    )
                )
        return found

    def output_rows(self, part: JobPart, name: str, limit: int) -> Iterator[Sequence[Any]]:
        """See `PartyTracking.output_rows`."""
        job = self._read_job(part.job_id)
        listed = list(job.dsl.components[part.component].outputs.get("data", ()))
        file = self._output(part, part.component, listed.index(name)) if name in listed else None
        if file is None:
            return
        frame = read_frame(file)
        columns = [frame.ids, *frame.columns.values()]
        for at in range(len(frame) if limit < 0 else min(limit, len(frame))):
            yield [one[at].item() if hasattr(one[at], "item") else one[at] for one in columns]

    def components(self, job_id: str) -> Sequence[str]:
        """See `PartyTracking.components`."""
        return list(self._read_job(job_id).dsl.order)

    def job_view(self, part: JobPart) -> Mapping[str, Any]:
        """See `PartyTracking.job_view`."""
        job, here = self._read_job(part.job_id), self._find_part(part)
        return {
            "partner": {role: list(ids) for role, ids in job.conf.roles.items()},
            "role": here.role,
            "party_id": here.id,
            "model_summary": {name: dict(self.summary(JobPart(part.job_id, *here, name))) for name in job.dsl.order},
        }

    # ------------------------------------------------------------------------------------------------------ inside

    def _latest(self, part: JobPart) -> Path | None:
        return self._folders.latest(part.job_id, self._find_part(part), part.component)

    def _output(self, part: JobPart, component: str, at: int) -> Path | None:
        with suppress(NotFoundError):
            file = self._folders.current(part.job_id, self._find_part(part), component) / f"data_{at}.arrow"
            return file if file.is_file() else None
        return None


def _summary_in(folder: Path | None) -> dict[str, Any]:
    found: Any = {}
    with suppress(OSError, ValueError):
        found = json.loads((folder / _SUMMARY).read_text()) if folder is not None else {}
    return found if isinstance(found, dict) else {}


def _bin_row(
    name: str, party: str, event: str, edges: Sequence[float] | None, told: Mapping[str, Any] | None
) -> dict[str, Any]:
    columns = zip(told["events"], told["non_events"], told["woe"], told["iv_by_bin"], strict=True) if told else ()
    return {
        "feature": name,
        "party": party,
        "event": event,
        "iv": None if told is None else told["iv"],
        "edges": None if edges is None else list(edges),
        "bins": [{"events": one, "non_events": other, "woe": woe, "iv": iv} for one, other, woe, iv in columns],
    }


def read_lines(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file of JSON lines; a torn last line is left out."""
    with suppress(OSError), file.open("rb") as source:
        for line in source.read(_MOST_METRICS).splitlines():
            with suppress(ValueError):
                found = json.loads(line)
                if isinstance(found, dict):
                    yield found
