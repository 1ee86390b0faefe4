"""Errors that travel to other parties tell nothing that belongs to this one."""

import msgspec
import numpy as np
import pytest

from weft.frontends.federated.components.frame import PartyFrame
from weft.frontends.federated.components.process import PartTask, without_columns
from weft.frontends.federated.components.tables import write_frame
from weft.frontends.federated.schema import Party
from weft.model.errors import PartyError, UnreadableError
from weft.parties.failures import error_of, for_others, line_of, report_of


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/srv/site/jobs/1/data_0.arrow is no table", "data_0.arrow is no table"),
        ("cannot read '/srv/site/party.db': no space", "cannot read 'party.db': no space"),
        ("see https://example.org/a/b and a/b", "see https://example.org/a/b and a/b"),
        ("weft party logs 1/hetero_lr_0", "weft party logs 1/hetero_lr_0"),
        ("the table n/rows is not granted", "the table n/rows is not granted"),
        ("the database in postgresql+pg8000://u:pw@db:5432/x: gone", "the database in postgresql+pg8000://... gone"),
        ("see 'postgresql://db/x?password=pw'", "see 'postgresql://...'"),
        ("see https://ada:pw@example.org/a", "see https://ada:***@example.org/a"),
    ],
)
def test_paths_and_databases_stay_at_their_party(text, told):
    assert for_others(text) == told
    found = error_of(report_of(UnreadableError(text, hint=text), "7"), "7")
    assert (found.message, found.hint) == (f"party 7: {told}", told)


def test_errors_of_others_are_one_line_without_control_characters():
    answer = msgspec.json.encode({"code": "WEFT603", "message": "no\n2026 ERROR \x1b[1mfaked", "party": "7\r8"})
    found = error_of(answer, "7")
    assert isinstance(found, PartyError)
    assert (found.message, found.party) == ("no 2026 ERROR [1mfaked", "7 8")
    assert line_of("x" * 300, 200) == "x" * 199 + "…"


def test_columns_that_the_job_does_not_name_stay_at_their_party(tmp_path):
    columns = {"income": np.array([1.0, np.inf]), "age": np.array([1.0, 2.0])}
    write_frame(tmp_path / "rows.arrow", PartyFrame(np.array(["1", "2"], dtype=object), columns))
    task = PartTask(
        job="1",
        component="scale_0",
        module="FeatureScale",
        here=Party("host", "2"),
        parties={"guest": ["1"], "host": ["2"]},
        parameters={"method": "min_max_scale", "scale_names": ["age"]},
        socket="",
        token="",
        data={"data": [str(tmp_path / "rows.arrow")]},
    )
    (tmp_path / "task.json").write_bytes(msgspec.json.encode(task))
    told = {"message": "column 'income' has infinite values, and column 'age' has none", "hint": "See 'income'."}
    found = without_columns(told, tmp_path)
    assert found["message"] == "column (named in its log) has infinite values, and column 'age' has none"
    assert "income" not in found["hint"]
