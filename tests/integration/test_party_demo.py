"""The demonstration to its end: the job of `weft party demo` over fewer clients and for one epoch.

`tests/soak/test_party_demo.py` runs it whole.
"""

import csv
import gzip
import json
import time

import pytest

pytest.importorskip("fastapi")

from weft.parties.demo import DemoClock, example_folder, run_demo
from weft.parties.site import PartySite

CLIENTS = 1_200
CLOCK = DemoClock(time.time, time.monotonic, time.sleep)


def smaller_example(folder):
    """Write the example with the first clients that both parties know, and one epoch; return the folder."""
    whole = example_folder()
    (folder / "data").mkdir(parents=True)
    tables = {}
    for role in ("guest", "host"):
        with gzip.open(whole / "data" / f"default_credit_{role}.csv.gz", "rt", newline="") as file:
            tables[role] = list(csv.reader(file))
    both = {row[0] for row in tables["guest"][1:]} & {row[0] for row in tables["host"][1:]}
    kept = sorted(both)[:CLIENTS]
    for role, (head, *rows) in tables.items():
        with gzip.open(folder / "data" / f"default_credit_{role}.csv.gz", "wt", newline="") as file:
            csv.writer(file).writerows([head, *(row for row in rows if row[0] in set(kept))])
    conf = json.loads((whole / "conf.json").read_text())
    conf["component_parameters"]["common"]["hetero_lr_0"] |= {"max_iter": 1, "batch_size": 400}
    (folder / "conf.json").write_text(json.dumps(conf))
    (folder / "dsl.json").write_text((whole / "dsl.json").read_text())
    return folder


@pytest.mark.slow
def test_the_demonstration_scores_credit_to_its_end(tmp_path):
    said: list[str] = []
    example = smaller_example(tmp_path / "example")
    found = run_demo(tmp_path / "parties", CLOCK, said.append, example=example)
    assert found.status == "success", found.shown
    assert found.metrics["intersection_0 train intersect_count"] == CLIENTS
    assert found.metrics["evaluation_0 train auc"] > 0.6
    ends = {one["name"]: one["status"] for one in found.shown["components"]}
    assert set(ends.values()) == {"success"}
    assert list(ends)[-2:] == ["hetero_lr_0", "evaluation_0"]
    assert any("3 parties run" in line for line in said)
    assert PartySite.open(tmp_path / "parties" / "host").party.id == "9998"
