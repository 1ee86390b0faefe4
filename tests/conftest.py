"""What all tests share: the Hypothesis profiles, and a seed that a failure prints."""

import gc
import os
import secrets
import signal
import zlib
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests import postgresql
from tests.started import all_ended

HERE = Path(__file__).parent
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci")

# `too_slow` times the machine, not the test. What a change must pass is the same each time; `make soak` looks further.
common = settings(deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fast", common, max_examples=20)
settings.register_profile("ci", common, max_examples=50)
settings.register_profile("soak", common, derandomize=False, max_examples=10_000)
settings.load_profile(PROFILE)

# Hypothesis parses all modules of Weft that a process has loaded for constants to try: that takes many seconds in each
# process, and what is drawn depends on the tests that ran before. `make soak` tries them.
if PROFILE != "soak":
    providers._get_local_constants = lambda: providers._local_constants

# A shell starts what runs in the background deaf to Ctrl-C, and `nohup` deaf to a hang-up; children inherit both, and
# the tests send both.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect tests without the garbage collector, and exempt from it what is there before the first test.

    Tests and modules live to the end by the ten thousand: each full collection of later tests would walk all of them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Begin each folder at another file in each process: the first to read a file rewrites its assertions for all.

    That takes longer than all else of a first collection. The order of the tests does not depend on it.
    """
    report = yield
    if isinstance(collector, pytest.Directory) and "PYTEST_XDIST_WORKER" in os.environ:
        number = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
        begin = len(report.result) * number // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        report.result = [*report.result[begin:], *report.result[:begin]]
    return report


LONGEST_FIRST = ("integration", "simulation", "properties", "conformance", "architecture", "unit")
SLOW_TEST = 30
"""How many other tests take as long as one that is marked as slow."""


def pytest_collection_modifyitems(config, items):
    if PROFILE != "soak":
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("soak")])
        items[:] = [item for item in items if not item.get_closest_marker("soak")]
    order_files(items)


def order_files(items):
    """Give processes that share the tests the longest files first: one that begins last leaves the others idle.

    `make test` asks xdist for this order; by itself it goes by the number of tests, of which long files have few.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    costs = Counter[Path]()
    for item in items:
        costs[item.path] += SLOW_TEST if item.get_closest_marker("slow") else 1
    ranks = {folder: rank for rank, folder in enumerate(LONGEST_FIRST)}

    def key(path):
        below = path.relative_to(HERE) if path.is_relative_to(HERE) else path
        return ranks.get(below.parts[0], len(ranks)), -costs[path], str(path)

    places = {path: place for place, path in enumerate(sorted(costs, key=key))}
    items.sort(key=lambda item: places[item.path])


@pytest.fixture(scope="session", autouse=True)
def machine(tmp_path_factory):
    """The machine as the tests of one process share it: no other program waits for them."""
    os.environ["XDG_RUNTIME_DIR"] = str(tmp_path_factory.mktemp("m"))


@pytest.fixture(autouse=True)
def processes_of_the_test():
    """End the processes that a test has started and, since it failed, not ended."""
    with all_ended():
        yield


@pytest.fixture(scope="module")
def few_objects():
    """Exempt from the garbage collector what is there, for tests that call it or list the objects that it knows."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def seed(request, record_property) -> int:
    """A seed of the test's own, a fresh one in `make soak`, or WEFT_SEED to repeat a failure, which prints it."""
    own = secrets.randbits(32) if PROFILE == "soak" else zlib.crc32(request.node.nodeid.encode())
    value = int(os.environ.get("WEFT_SEED") or own)
    record_property("seed", value)
    print(f"repeat with WEFT_SEED={value}")
    return value


@pytest.fixture(scope="session")
def postgresql_server():
    with postgresql.server() as folder:
        yield folder
        gc.collect()  # connections that nobody has closed end before their server, and in silence


@pytest.fixture
def postgresql_url(postgresql_server):
    """The URL of an empty database on a PostgreSQL server; skips where there is none."""
    return postgresql.fresh_database(postgresql_server)
