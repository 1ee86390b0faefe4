"""Which texts and files ask for what commands look at."""

import pytest

from weft.operators.looking import EXISTENCE, NOTHING, STATES, code_in, looks_in

STATE_WORDS = [
    "os.path.getsize(path)",
    "os.path.getmtime(path)",
    "path.stat().st_mtime",
    "from os import stat; stat(name)",
    "stat -c %s data/x.csv",
    'if [ "$in" -nt out ]; then',
    "test -s data/x.csv",
    "[[ -f x && -s $y ]]",
    "find . -newer mark",
    "find data -name '*.csv' -size +1M",
    "du -sh data",
    "ls -l data",
    "make -C sub all",
    "cd sub && make",
    "if true; then make; fi",
    'subprocess.run(["make", "all"])',
    "file.info(path)$size",
    "fs.statSync(path)",
    "rsync -a data/ copy",
    "cp -ru data copy",
]
EXISTENCE_WORDS = [
    "os.path.exists(path)",
    "path.is_file()",
    "os.path.isdir(path)",
    "os.access(path, os.R_OK)",
    "test -f data/x.csv && cat data/x.csv",
    "[ -d models ] || mkdir models",
    "while [ ! -e gate ]; do sleep 1; done",
    "[[ $x = y && -e $z ]]",
    'print "yes" if (-e "data/x.csv");',
    "file.exists(path)",
    "fs.existsSync(path)",
]
OTHER_WORDS = [
    "import numpy as np; from scipy import stats",
    "cat data/x.csv | sort -n | head -5 > out",
    "rm -f old; tail -n 3 x",
    "# make a table of the test results",
    "python train.py --size 5 --test -v",
    "statistics = [1, -2, x]\nplot(a[-e])",
    'test "$x" = -v',
]


@pytest.mark.parametrize("text", STATE_WORDS)
def test_words_that_ask_for_sizes_and_times(text):
    assert looks_in(["", text]) == STATES


@pytest.mark.parametrize("text", EXISTENCE_WORDS)
def test_words_that_ask_whether_files_are_there(text):
    assert looks_in([text, ""]) == EXISTENCE
    assert looks_in([text, STATE_WORDS[0]]) == STATES


@pytest.mark.parametrize("text", OTHER_WORDS)
def test_texts_without_such_words(text):
    assert looks_in([text]) == NOTHING


def test_programs_are_read_and_no_data(tmp_path):
    texts = {"a.py": "py", "run": "#!/bin/sh", "data": "data", "x.csv": "csv", "lib/m.R": "r", ".hidden/b.py": "hidden"}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert sorted(code_in([str(tmp_path), str(tmp_path / "none.py")])) == ["/bin/sh", "py", "r"]
    assert list(code_in([str(tmp_path / "x.csv"), str(tmp_path / "a.py")])) == ["py"]
