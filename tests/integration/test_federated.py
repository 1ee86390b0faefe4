"""Federated jobs on the command line."""

import json

from tests.integration.places import Project
from tests.unit.frontends.federated.test_files import conf_2, dsl


def test_the_command_line_prints_what_runs_at_which_party(tmp_path):
    project = Project(tmp_path)
    (tmp_path / "conf.json").write_text(json.dumps(conf_2()))
    (tmp_path / "dsl.json").write_text(json.dumps(dsl()))
    code, out, err = project.weft("plan", "conf.json", "--dsl", "dsl.json")
    assert code == 0, err
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line}
    assert rows["COMPONENT"] == ["MODULE", "AFTER", "GUEST", "1", "HOST", "2", "HOST", "3", "ARBITER", "2"]
    assert rows["hetero_lr_0"] == ["HeteroLR", "intersection_0", "runs", "runs", "runs", "runs"]
    assert rows["intersection_0"] == ["Intersection", "reader_0", "runs", "runs", "runs", "-"]
    code, out, _ = project.weft("plan", "conf.json", "--dsl", "dsl.json", "--json")
    assert code == 0
    guest = json.loads(out)["federated"]["parties"][0]
    assert guest["components"]["hetero_lr_0"]["parameters"]["alpha"] == 0.1
    code, _, err = project.weft("plan", "conf.json", "--dsl", "dsl.json", "--only", "hetero_lr_0")
    assert code == 2
    assert "--dsl is for federated jobs" in err
    for file in ("conf.json", "dsl.json"):
        code, _, err = project.weft("plan", file)
        assert code == 3
        assert "of a federated job: weft plan conf.json --dsl dsl.json" in err
    code, _, err = project.weft("plan", "conf.json", "--dsl", "conf.json")
    assert code == 3
    assert "error WEFT208: " in err
