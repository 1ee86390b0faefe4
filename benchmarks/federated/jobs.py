"""Jobs between servers of parties on this machine."""

from __future__ import annotations

import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from weft.parties.demo import ENDED, DemoClock, example_folder, make_parties, servers
from weft.parties.ledger import JobEntry, PartyLedger

if TYPE_CHECKING:
    from weft.parties.client import SiteClient
    from weft.parties.site import PartySite

CLOCK = DemoClock(time.time, time.monotonic, time.sleep)
COMPONENTS = 20
WAITING, ENDED_JOBS = 1_000, 10_000
_POLL_S, _SELDOM_S = 0.005, 0.5
_TABLE = {"dataset": {"namespace": "n", "name": "t"}}


def _run(client: SiteClient, dsl: Any, conf: Any, poll_s: float = _POLL_S) -> tuple[str, float]:
    """Run a job, and return its id and its seconds from submit to success, asking for its state every `poll_s`."""
    begin = time.perf_counter()
    job = str(client.post("job/submit", {"job_dsl": dsl, "job_runtime_conf": conf})["job_id"])
    while True:
        rows = client.post("job/query", {"job_id": job})
        row = (rows["jobs"] if isinstance(rows, dict) else rows)[0]
        if row["f_status"] in ENDED:
            break
        time.sleep(poll_s)
    seconds = time.perf_counter() - begin
    if row["f_status"] != "success":
        raise RuntimeError(f"the job ended as {row['f_status']}: {client.post('weft/job', {'job_id': job})['reason']}")
    return job, seconds


def _busy(sites: dict[str, PartySite], job: str) -> float:
    """Return the seconds in which processes of parts ran: of each component those of the slowest party, added."""
    times: dict[str, float] = {}
    for site in sites.values():
        for result in (site.folder / "jobs" / job).glob("*/*/*/*/result.json"):
            component = result.parent.parent.name
            took = result.stat().st_mtime - (result.parent / "task.json").stat().st_mtime
            times[component] = max(times.get(component, 0.0), took)
    return sum(times.values())


def toy() -> dict[str, float]:
    """Add secret shares of two of three parties."""
    example = example_folder()
    with TemporaryDirectory() as name:
        sites = make_parties(Path(name), (("guest", "9999"), ("host", "9998"), ("arbiter", "10000")), time.time())
        with servers(sites, CLOCK) as clients:
            dsl, conf = (json.loads((example / f"toy_{one}.json").read_text()) for one in ("dsl", "conf"))
            job, seconds = _run(clients["guest"], dsl, conf)
        return {"seconds": seconds, "scheduling": seconds - _busy(sites, job)}


def chain() -> dict[str, float]:
    """Run components one after another at two parties."""
    components: dict[str, Any] = {"reader_0": {"module": "Reader", "output": {"data": ["data"]}}}
    for at in range(COMPONENTS - 1):
        source = f"transform_{at - 1}.data" if at else "reader_0.data"
        components[f"transform_{at}"] = {
            "module": "DataTransform",
            "input": {"data": {"data": [source]}},
            "output": {"data": ["data"]},
        }
    table = {"reader_0": {"table": {"name": "t", "namespace": "n"}}}
    conf = {
        "dsl_version": 2,
        "initiator": {"role": "guest", "party_id": 1},
        "role": {"guest": [1], "host": [2]},
        "component_parameters": {"common": table},
    }
    with TemporaryDirectory() as name:
        sites = make_parties(Path(name), (("guest", "1"), ("host", "2")), time.time())
        rows = Path(name) / "rows.csv"
        rows.write_text("id,x\n1,2\n")
        with servers(sites, CLOCK) as clients:
            for client in clients.values():
                client.upload(rows, {"namespace": "n", "table_name": "t", "head": 1, "partition": 1})
                client.post("permission/grant", {"party_id": "1"} | _TABLE)
            job, seconds = _run(clients["guest"], {"components": components}, conf)
        return {"seconds": seconds, "overhead": (seconds - _busy(sites, job)) / (COMPONENTS * 2)}


def _learn(module: str, parameters: dict[str, Any], tables: dict[str, Path], roles: dict[str, list[str]]) -> float:
    """Train a model over the tables of guest and host, and return the seconds of its component."""
    label = {"with_label": True, "label_name": "y"}
    conf = {
        "dsl_version": 2,
        "initiator": {"role": "guest", "party_id": "9999"},
        "role": roles,
        "component_parameters": {
            "common": {"reader_0": {"table": {"name": "t", "namespace": "n"}}, "learn_0": parameters},
            "role": {"guest": {"0": {"transform_0": label}}},
        },
    }
    steps = (("transform_0", "DataTransform", "data"), ("learn_0", module, "train_data"))
    components: dict[str, Any] = {"reader_0": {"module": "Reader", "output": {"data": ["data"]}}}
    for name, of, key in steps:
        source = f"{list(components)[-1]}.data"
        components[name] = {"module": of, "input": {"data": {key: [source]}}, "output": {"data": ["data"]}}
    with TemporaryDirectory() as name:
        parties = [("guest", "9999"), ("host", "9998"), ("arbiter", "10000")]
        sites = make_parties(Path(name), parties, time.time())
        with servers(sites, CLOCK) as clients:
            for role, rows in tables.items():
                clients[role].upload(rows, {"namespace": "n", "table_name": "t", "head": 1, "partition": 1})
                clients[role].post("permission/grant", {"party_id": "9999"} | _TABLE)
            # the component times itself, and answers would take time from it
            job, _ = _run(clients["guest"], {"components": components}, conf, _SELDOM_S)
            shown = clients["guest"].post("weft/job", {"job_id": job})
    return float(next(one["seconds"] for one in shown["components"] if one["name"] == "learn_0"))


def credit() -> dict[str, float]:
    """Train a logistic regression over 30,000 rows for 10 epochs, at two parties and an arbiter."""
    folder = example_folder() / "data"
    tables = {role: folder / f"default_credit_{role}.csv.gz" for role in ("guest", "host")}
    parameters = {
        "optimizer": "adam",
        "learning_rate": 0.1,
        "alpha": 0.001,
        "batch_size": 3200,
        "max_iter": 10,
        "tol": 0,
    }
    roles = {"guest": ["9999"], "host": ["9998"], "arbiter": ["10000"]}
    return {"seconds": _learn("HeteroLR", parameters, tables, roles)}


def boost() -> dict[str, float]:
    """Grow 50 trees over the breast cancer data of scikit-learn, at two parties."""
    from sklearn.datasets import load_breast_cancer

    matrix, y = load_breast_cancer(return_X_y=True)
    with TemporaryDirectory() as name:
        tables = {}
        for role, columns in (("guest", range(10)), ("host", range(10, 30))):
            tables[role] = Path(name) / f"{role}.csv"
            head = ["id", *(["y"] if role == "guest" else []), *(f"x{at}" for at in columns)]
            lines = [",".join(head)]
            for at, row in enumerate(matrix):
                own = [f"c{at}", *([str(y[at])] if role == "guest" else []), *(str(row[one]) for one in columns)]
                lines.append(",".join(own))
            tables[role].write_text("\n".join(lines) + "\n")
        parameters = {"num_trees": 50, "tree_param": {"max_depth": 3}, "learning_rate": 0.3}
        return {"seconds": _learn("HeteroSecureBoost", parameters, tables, {"guest": ["9999"], "host": ["9998"]})}


def waiting() -> dict[str, float]:
    """Submit jobs that wait for a party that does not run."""
    example = example_folder()
    with TemporaryDirectory() as name:
        sites = make_parties(Path(name), (("guest", "9999"), ("host", "9998")), time.time())
        times = []
        with servers({"guest": sites["guest"]}, CLOCK) as clients:
            dsl, conf = (json.loads((example / f"toy_{one}.json").read_text()) for one in ("dsl", "conf"))
            for _ in range(WAITING):
                begin = time.perf_counter()
                clients["guest"].post("job/submit", {"job_dsl": dsl, "job_runtime_conf": conf})
                times.append(time.perf_counter() - begin)
        return {"seconds": sorted(times)[int(len(times) * 0.95)]}


def restart() -> dict[str, float]:
    """Start a server that has many ended jobs in its records."""
    example = example_folder()
    with TemporaryDirectory() as name:
        sites = make_parties(Path(name), (("guest", "9999"),), time.time())
        texts = {one: (example / f"toy_{one}.json").read_text() for one in ("dsl", "conf")}
        ledger = PartyLedger(sites["guest"].folder / "party.db")
        with ledger.write() as write:
            for at in range(ENDED_JOBS):
                write.add_job(
                    JobEntry(
                        job=f"{at:020d}",
                        digest="",
                        initiator_role="guest",
                        initiator="9999",
                        mine=1,
                        status="success",
                        created=float(at),
                        started=float(at),
                        ended=float(at),
                        **texts,
                    )
                )
                write.set_coordination(f"{at:020d}", "{}", live=False)
        ledger.close()
        begin = time.perf_counter()
        with servers(sites, CLOCK):
            return {"seconds": time.perf_counter() - begin}


CASES = {"toy": toy, "chain": chain, "credit": credit, "boost": boost, "waiting": waiting, "restart": restart}
