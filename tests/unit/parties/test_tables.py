"""The tables of a party: rows that come back as they went in, mistakes with their line, crashes, grants."""

from __future__ import annotations

import gzip
import io
import os
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.party_ports import FixedClock
from weft.model.errors import (
    ConflictError,
    ForbiddenError,
    InputLimitError,
    NotFoundError,
    PartyRefusedError,
    UnreadableError,
    UsageError,
)
from weft.parties import csv_rows
from weft.parties.csv_rows import CsvRows, CsvShape
from weft.parties.tables import JobNames, NewTable, PartyTables

ROWS = b"id,y,x0\n3,0,0.5\n1,1,0.7\n2,1,\n"


@pytest.fixture
def tables(tmp_path):
    found = PartyTables.open(tmp_path / "site", clock=FixedClock())
    yield found
    found.close()


def new(name: str = "a", **options) -> NewTable:
    return NewTable(namespace="experiment", name=name, **options)


def upload(tables: PartyTables, data: bytes = ROWS, table: NewTable | None = None):
    return tables.upload(io.BytesIO(data), table or new(), name="a.csv", conf={"file": "a.csv"})


def rows_of(tables: PartyTables, name: str = "a") -> list[tuple[str, ...]]:
    return [tuple(row) for row in tables.rows(tables.get("experiment", name))]


# -------------------------------------------------------------------------------------------------------------- to read


def test_rows_stay_strings_in_their_order(tables):
    job = upload(tables)
    table = tables.get("experiment", "a")
    assert (table.count, table.id_name, table.header, table.job_id) == (3, "id", ("y", "x0"), job.job_id)
    assert rows_of(tables) == [("3", "0", "0.5"), ("1", "1", "0.7"), ("2", "1", "")]
    frame = tables.frame("experiment", "a")
    assert (list(frame.ids), list(frame.columns), list(frame.columns["x0"])) == (
        ["3", "1", "2"],
        ["y", "x0"],
        ["0.5", "0.7", ""],
    )
    assert [tuple(row) for row in tables.rows(table, 1)] == [("3", "0", "0.5")]


CELLS = st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters='\n",;'), max_size=8)


@given(
    rows=st.lists(st.tuples(CELLS.filter(str.strip), CELLS), min_size=1, max_size=30, unique_by=lambda row: row[0]),
    delimiter=st.sampled_from(",;|"),
)
@settings(max_examples=60, deadline=None)
def test_whatever_is_written_as_csv_comes_back(tmp_path_factory, rows, delimiter):
    import csv

    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerows([("id", "x"), *rows])
    tables = PartyTables.open(tmp_path_factory.mktemp("site"), clock=FixedClock())
    upload(tables, text.getvalue().encode(), new(delimiter=delimiter))
    assert rows_of(tables) == rows
    out = io.StringIO()
    tables.write_csv(tables.get("experiment", "a"), out, delimiter=delimiter)
    tables.upload(io.BytesIO(out.getvalue().encode()), new("b", delimiter=delimiter), name="b.csv")
    assert rows_of(tables, "b") == rows
    tables.close()


def test_a_table_larger_than_a_batch_keeps_its_order(tables, monkeypatch):
    monkeypatch.setattr(csv_rows, "_BATCH", 7)
    data = b"id,x\n" + b"".join(b"%d,%d\n" % (100 - at, at) for at in range(50))
    upload(tables, data)
    assert rows_of(tables) == [(str(100 - at), str(at)) for at in range(50)]


def test_a_file_without_a_head_keeps_what_follows_the_id(tables):
    upload(tables, b"1,a:0.5 b:1\n2,1,0:0.25,1:0.75\n\n3,\n", new(head=False))
    assert rows_of(tables) == [("1", "a:0.5 b:1"), ("2", "1,0:0.25,1:0.75"), ("3", "")]
    assert tables.get("experiment", "a").header == ("value",)
    out = io.StringIO()
    tables.write_csv(tables.get("experiment", "a"), out)
    assert out.getvalue() == "1,a:0.5 b:1\n2,1,0:0.25,1:0.75\n3,\n"


def test_a_first_line_of_svmlight_is_no_head(tables):
    upload(tables, b"1,1,0:-0.5,1:2e-3\n2,0,0:1,1:1,2:7\n")
    assert (tables.get("experiment", "a").head, tables.get("experiment", "a").id_name) == (False, "sid")
    assert rows_of(tables) == [("1", "1,0:-0.5,1:2e-3"), ("2", "0,0:1,1:1,2:7")]
    with pytest.raises(UsageError, match="line 3: the id '1' is that of line 1 too"):
        upload(tables, b"1,1,0:-0.5\n2,0,0:1,1:1\n1,0,0:1\n", new(drop=True))
    upload(tables, b"id,y,t:1\n1,0,2\n", new(drop=True))
    assert tables.get("experiment", "a").header == ("y", "t:1")


@pytest.mark.parametrize(("counted", "first"), [(True, "0"), (False, "JOB_0")])
def test_ids_are_made(tables, counted, first):
    job = upload(tables, b"y,x\n1,5\n1,5\n", new(extend_sid=True, auto_increasing_sid=counted))
    table = tables.get("experiment", "a")
    assert (table.id_name, table.header) == ("sid", ("y", "x"))
    assert rows_of(tables)[0] == (first.replace("JOB", job.job_id), "1", "5")
    assert len(tables.frame("experiment", "a")) == 2


def test_a_byte_order_mark_and_ends_of_lines_of_windows_are_no_data(tables):
    upload(tables, b"\xef\xbb\xbfid, x\r\n1,5\r\n2,6")
    assert (tables.get("experiment", "a").id_name, tables.get("experiment", "a").header) == ("id", ("x",))
    assert rows_of(tables) == [("1", "5"), ("2", "6")]


# ------------------------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", "a.csv is empty"),
        (b"id,x\n1,2\n1,2,3\n", "line 3: 3 values, and the head has 2"),
        (b"id,x\n1\n", "line 2: 1 values"),
        (b"id,x\n1,2\n2,3\n1,4\n", "line 4: the id '1' is that of line 2 too"),
        (b'id,x\n"a\nb",2\n1,3\n1,4\n', "line 5: the id '1' is that of line 4 too"),
        (b"id,x,x\n", "line 1: two columns are named 'x'"),
        (b"id,id\n", "line 1: two columns are named 'id'"),
        (b"id,,x\n", "line 1: a column has no name"),
        (b"id,x\n1,\xff\n", "line 2, byte 3 is not UTF-8"),
        (b"id,x\n1,2\n,3\n", "line 3: the id is empty"),
        (b"id,x\n1,2\n  ,3\n", "line 3: the id is empty"),
        (b"id;y;x\n1;0;2\n", "line 1: the head has one column, 'id;y;x', since the delimiter is ','"),
        (b"id\ty\n1\t0\n", "line 1: the head has one column"),
        (b"id,x\n1,\x00\n", "line 2 has a NUL byte"),
        (b"id,x\n1," + b"9" * 200_000, "line 2: field larger than field limit"),
        (b'id,x\n1,"2\n2,3\n3,4\n', "line 2: a quote does not end; its row goes on to line 4"),
        (b"id,x\r1,2\r", "line 1: a line ends with a carriage return alone"),
        (b'id,"x\n1,2\n', "line 1: a quote does not end; its row goes on to line 2"),
        (b'id,x\n1,"2\n2,"3"\n', "line 2: ',' expected after '\"'; its row goes on to line 3"),
        (b'id,x\n1,2\n2,"3\n4",5\n', "line 3: 3 values, and the head has 2; its row goes on to line 4"),
        (b"id,x\n", "a.csv has a head and no rows"),
        (b"id,x\n\n\n", "a.csv has a head and no rows"),
        (b"%PDF-1.4\n1 0 obj\nendobj\n", "a.csv is a PDF document, not a CSV file"),
        (gzip.compress(b"%PDF-1.4\n1 0 obj\n", mtime=0), "a.csv is a PDF document, not a CSV file"),
        (b"\xef\xbb\xbf<?xml version='1.0'?>\n<a/>\n", "a.csv is an XML document"),
        (b"PK\x03\x04abc", "a.csv is an Excel file or a ZIP archive"),
    ],
)
def test_a_mistake_has_its_line_and_leaves_nothing(tables, data, found):
    with pytest.raises(UsageError) as raised:
        upload(tables, data)
    assert found in raised.value.message
    assert tables.all() == []
    assert list(tables.folder.iterdir()) == []


def test_a_line_of_a_file_without_a_head_needs_an_id(tables):
    with pytest.raises(UsageError, match="line 2: there is no ',' after the id"):
        upload(tables, b"1,a\n2\n", new(head=False))
    with pytest.raises(UsageError, match="line 3: the id '1' is that of line 1 too"):
        upload(tables, b"1,a\n2,b\n1,c\n", new(head=False))
    with pytest.raises(UsageError, match="line 2: the id is empty"):
        upload(tables, b"1,a\n,b\n", new(head=False))


def test_ids_alone_are_a_table_and_values_may_be_empty(tables):
    upload(tables, b"id\n1\n2\n")
    upload(tables, b"y,x\n,1\n,2\n", new("b", extend_sid=True))
    assert (rows_of(tables), len(rows_of(tables, "b"))) == ([("1",), ("2",)], 2)


def test_a_name_of_gzip_needs_gzip(tables):
    with pytest.raises(UsageError, match=r"a\.csv\.GZ is not compressed with gzip, though its name says so"):
        tables.upload(io.BytesIO(ROWS), new(), name="a.csv.GZ")
    tables.upload(io.BytesIO(gzip.compress(ROWS)), new(), name="a.csv.gz")
    assert len(rows_of(tables)) == 3


def test_sizes_are_limited(tables, monkeypatch):
    for name, most in (("MOST_ROWS", 3), ("MOST_COLUMNS", 3), ("MOST_LINE", 8)):
        monkeypatch.setattr(csv_rows, name, most)
    upload(tables)
    with pytest.raises(InputLimitError, match="more than 3 rows"):
        upload(tables, ROWS + b"4,1,1\n", new(drop=True))
    with pytest.raises(InputLimitError, match="4 columns"):
        upload(tables, b"a,b,c,d\n", new(drop=True))
    with pytest.raises(InputLimitError, match="line 2 has more than"):
        upload(tables, b"a,b\n1,3456789\n", new(drop=True))
    assert len(rows_of(tables)) == 3


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 256, "a\x00"])
def test_names_are_printable_and_short(name):
    with pytest.raises(UsageError, match="table_name is"):
        new(name)


def test_a_name_does_not_stand_for_all_tables():
    for namespace, name in (("experiment", "*"), ("*", "a")):
        with pytest.raises(UsageError, match=r"is '\*'"):
            NewTable(namespace=namespace, name=name)


@pytest.mark.parametrize("delimiter", ["", ",,", '"', "\n"])
def test_a_delimiter_is_one_character(delimiter):
    with pytest.raises(UsageError, match="the delimiter is"):
        CsvShape(delimiter=delimiter)


def test_equal_hashes_of_other_ids_are_no_mistake():
    rows = CsvRows(io.BytesIO(b"id,x\n1,2\n2,3\n"), CsvShape(), name="a.csv")
    rows.refuse_twice(frozenset({hash("1"), hash("2")}))


# ------------------------------------------------------------------------------------------------- replacement, crashes


def test_a_table_is_replaced_with_drop_only(tables):
    upload(tables)
    with pytest.raises(ConflictError, match="exists already"):
        upload(tables, b"id\n1\n")
    upload(tables, b"id,z\n9,8\n", new(drop=True))
    assert rows_of(tables) == [("9", "8")]
    assert len(list(tables.folder.iterdir())) == 1


@pytest.mark.parametrize("at", ["fsync", "replace"])
def test_a_failure_leaves_the_old_table(tables, monkeypatch, at):
    upload(tables)

    def broken(*_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(os, at, broken)
    with pytest.raises(OSError, match="no"):
        upload(tables, b"id,z\n9,8\n", new(drop=True))
    monkeypatch.undo()
    assert rows_of(tables)[0] == ("3", "0", "0.5")
    assert len(list(tables.folder.iterdir())) == 1


def test_a_failed_record_leaves_the_old_table(tables, monkeypatch):
    upload(tables)
    monkeypatch.setattr("weft.parties.table_index._flat_job", lambda job: {"job_id": "1"})
    with pytest.raises(Exception, match="bind"):
        upload(tables, b"id,z\n9,8\n", new(drop=True))
    assert rows_of(tables)[0] == ("3", "0", "0.5")
    assert len(tables.jobs()) == 1
    assert len(list(tables.folder.iterdir())) == 1


def test_files_of_a_killed_process_are_swept(tables):
    upload(tables)
    (tables.folder / "0f.part").write_bytes(b"half")
    (tables.folder / "1f.arrow").write_bytes(b"whole")
    (tables.folder / "notes.txt").write_bytes(b"mine")
    assert tables.sweep() == 2
    assert sorted(path.suffix for path in tables.folder.iterdir()) == [".arrow", ".txt"]
    assert len(rows_of(tables)) == 3


def test_a_damaged_file_is_an_error(tables):
    upload(tables)
    (tables.folder / tables.get("experiment", "a").file).write_bytes(b"damaged")
    with pytest.raises(UnreadableError, match="cannot be read"):
        rows_of(tables)


def test_one_of_two_uploads_at_once_wins(tables):
    starts, answers = threading.Barrier(2), []

    def run(value: bytes) -> None:
        starts.wait()
        try:
            upload(tables, b"id,x\n1," + value)
            answers.append(value)
        except ConflictError:
            answers.append(b"")

    threads = [threading.Thread(target=run, args=(value,)) for value in (b"5", b"6")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    won = max(answers)
    assert sorted(answers) == [b"", won]
    assert rows_of(tables) == [("1", won.decode())]
    assert len(list(tables.folder.iterdir())) == 1


def test_tables_are_there_after_a_restart(tmp_path):
    first = PartyTables.open(tmp_path)
    upload(first)
    first.grant("experiment", "a", "10000")
    first.close()
    second = PartyTables.open(tmp_path)
    assert len(rows_of(second)) == 3
    assert second.granted("experiment", "a", "10000")
    second.close()


def test_ids_of_jobs_are_in_the_form_of_fate_and_differ_in_threads():
    names = JobNames(FixedClock())
    made: list[str] = []
    threads = [threading.Thread(target=lambda: made.extend(names() for _ in range(50))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 200
    assert made[0].startswith("20231114221320")
    assert all(one.isdigit() for one in made)


# ------------------------------------------------------------------------------------------------- changes, grants, use


def test_a_table_is_renamed_with_its_grants(tables):
    upload(tables)
    tables.grant("experiment", "a", "10000")
    tables.rename("experiment", "a", "other", "b")
    assert tables.find("experiment", "a") is None
    assert tables.get("other", "b").count == 3
    assert tables.grants() == [("other", "b", "10000")]
    upload(tables)
    with pytest.raises(ConflictError):
        tables.rename("experiment", "a", "other", "b")


def test_a_disabled_table_is_refused_and_can_be_removed(tables):
    upload(tables)
    tables.enable("experiment", "a", on=False)
    with pytest.raises(PartyRefusedError, match="disabled"):
        tables.frame("experiment", "a")
    tables.enable("experiment", "a", on=True)
    assert tables.delete_disabled() == []
    tables.enable("experiment", "a", on=False)
    assert [one.name for one in tables.delete_disabled()] == ["a"]
    assert list(tables.folder.iterdir()) == []


def test_partners_use_granted_tables_only(tmp_path):
    tables = PartyTables.open(tmp_path)
    upload(tables)
    assert len(tables.frame("experiment", "a")) == 3
    with pytest.raises(PartyRefusedError, match="not granted to party 10000"):
        tables.frame("experiment", "a", party="10000")
    upload(tables, table=new("my rows; x"))
    with pytest.raises(PartyRefusedError) as caught:
        tables.frame("experiment", "my rows; x", party="10000")
    assert caught.value.hint.endswith("weft party grant 10000 --namespace experiment --name 'my rows; x'")
    for namespace, name in (("experiment", "a"), ("experiment", "*"), ("*", "*")):
        tables.grant(namespace, name, "10000")
        tables.grant(namespace, name, "10000")
        assert len(tables.frame("experiment", "a", party="10000")) == 3
        assert not tables.granted("experiment", "a", "10001")
        tables.revoke(namespace, name, "10000")
        with pytest.raises(NotFoundError):
            tables.revoke(namespace, name, "10000")
    with pytest.raises(PartyRefusedError):
        tables.frame("experiment", "a", party="10000")
    tables.close()


def test_a_new_table_of_the_same_name_needs_new_grants(tables):
    upload(tables)
    tables.grant("experiment", "a", "10000")
    tables.delete("experiment", "a")
    upload(tables)
    assert tables.grants() == []


@pytest.fixture
def site(tmp_path):
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "in" / "a.csv").write_bytes(ROWS)
    (tmp_path / "secret.csv").write_bytes(ROWS)
    (tmp_path / "in" / "link.csv").symlink_to(tmp_path / "secret.csv")
    (tmp_path / "in" / "sub" / "up").symlink_to(tmp_path)
    found = PartyTables.open(tmp_path / "site", sources=[tmp_path / "in"], targets=[tmp_path / "in" / "sub"])
    yield found, tmp_path
    found.close()


@pytest.mark.parametrize("path", ["secret.csv", "in/link.csv", "in/../secret.csv", "in/sub/up/secret.csv", "in", "/"])
def test_a_path_outside_of_the_folders_is_refused(site, path):
    tables, folder = site
    for use in (tables.upload_path, tables.bind):
        if path == "in/sub/up/secret.csv" or use is tables.upload_path or path not in ("in", "/"):
            with pytest.raises(ForbiddenError):
                use(str(folder / path), new())
    assert tables.all() == []


def test_no_folder_is_allowed_unless_the_site_says_so(tables, tmp_path):
    (tmp_path / "a.csv").write_bytes(ROWS)
    with pytest.raises(ForbiddenError, match="no folder that this site allows") as raised:
        tables.upload_path(str(tmp_path / "a.csv"), new())
    assert raised.value.hint == "Send the file with the request: use_local_data 1."


def test_a_bound_file_is_read_where_it_lies(site):
    tables, folder = site
    tables.bind(str(folder / "in" / "a.csv"), new())
    (folder / "in" / "a.csv").write_bytes(ROWS + b"7,1,2\n")
    assert rows_of(tables)[-1] == ("7", "1", "2")
    assert len(tables.frame("experiment", "a")) == 4
    assert tables.get("experiment", "a").count is None
    (folder / "in" / "a.csv").write_bytes(ROWS + b"3,1,2\n")
    with pytest.raises(UsageError, match="line 5: the id '3'"):
        tables.frame("experiment", "a")
    tables.delete("experiment", "a")
    assert (folder / "in" / "a.csv").exists()


def test_a_bound_folder_has_no_rows(site):
    tables, folder = site
    tables.bind(str(folder / "in" / "sub"), new())
    with pytest.raises(UsageError, match="has no rows"):
        tables.frame("experiment", "a")


def test_a_download_is_recorded(site):
    tables, folder = site
    upload(tables)
    job = tables.download("experiment", "a", str(folder / "in" / "sub" / "x" / "a.csv"), delimiter=";", user="ada")
    assert (folder / "in" / "sub" / "x" / "a.csv").read_bytes() == ROWS.replace(b",", b";")
    assert tables.jobs(job.job_id) == [job]
    assert (job.user, job.count, tables.count_jobs()) == ("ada", 3, 2)
    with pytest.raises(ForbiddenError):
        tables.download("experiment", "a", str(folder / "in" / "b.csv"))


def test_a_quote_that_does_not_end_is_an_error_instead_of_a_loss_of_rows(tables):
    rows = b"id,x\n" + b"".join(b"%d,%s\n" % (at, b'"5 inch' if at == 10 else b"1") for at in range(100))
    with pytest.raises(UsageError, match=r"a\.csv, line 12: a quote does not end"):
        upload(tables, rows)
    with pytest.raises(UsageError, match=r"a\.csv is empty"):
        upload(tables, b"", new(head=False))
    assert tables.all() == []
