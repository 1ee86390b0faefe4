"""A world for the commands: streams, a folder, and a wiring that plays a chain of three steps to a script."""

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

from tests.unit.runs.shell import STEPS, Shell, chain
from weft.cli.context import CommandContext
from weft.cli.main import main
from weft.engine.events import CancelRequested, Failed
from weft.engine.policy import ManagerFactory
from weft.engine.ports import ManualClock
from weft.frontends.pipelines.states import PROJECTION
from weft.graph.logical import LogicalGraph
from weft.model.errors import NotFoundError, RunCancelledError, TaskError, WeftError
from weft.model.failures import Failure
from weft.runs.active import RunAnnounced
from weft.runs.recorder import RunRecorder
from weft.store.catalog import RunRow
from weft.store.state import RunFolder

START = 1_700_000_000.0


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@dataclass
class FakeLoaded:
    graph: LogicalGraph
    file: str
    overrides: dict[str, str]
    user: str
    name: str
    steps: list[str] = field(default_factory=lambda: list(STEPS))
    warnings: list[str] = field(default_factory=list)


@dataclass
class FakeWiring:
    """`fail` names a step that fails.

    `before` is called when a run is about to begin, `during` when its second step runs (to raise, or to look around).
    """

    clock: ManualClock
    MANAGERS: dict[str, ManagerFactory] = field(default_factory=dict)
    fail: str = ""
    message: str = "step train ended with exit code 3"
    cancel_by: str = ""
    warnings: list[str] = field(default_factory=list)
    before: Callable[[], None] = lambda: None
    during: Callable[[RunFolder], None] = lambda folder: None
    loaded: list[FakeLoaded] = field(default_factory=list)
    settings: list[object] = field(default_factory=list)
    log: str = "hello from {step}\n"
    outputs: dict[str, str] = field(default_factory=lambda: {"report.page": "/out/page.html"})

    def Surroundings(self, **said):  # noqa: N802 - it stands for a class
        return said

    def order_driver(self, folder, message):
        raise AssertionError("no cluster drives these runs")

    def driver_lives(self, folder):
        raise AssertionError("no cluster drives these runs")

    def make_ready(self, backend):
        """Note nothing: nothing needs to be ready."""

    def is_job_file(self, path):
        return False

    def layered(self, path, below, above):
        return {**below, **above}

    def load_pipeline(self, path, *, overrides, user, name, caching=None, around=None):
        if not Path(path).name.endswith(".yaml"):
            raise NotFoundError(f"there is no file {path}")
        self.loaded.append(FakeLoaded(chain(), path, dict(overrides), user, name, warnings=self.warnings))
        return self.loaded[-1]

    def run_pipeline(
        self, loaded, settings, *, on_record, on_note, on_announced, on_interrupt, on_begin, firing, labels, quiet
    ):
        self.settings.append(settings)
        self.before()
        root = settings.state_root(Path(loaded.file).absolute().parent)
        root.prepare()
        catalog = root.catalog()
        id, number = catalog.next_run_id()
        about = {"name": loaded.name or "chain", "number": number, "user": loaded.user, "file": loaded.file}
        about |= {"parameters": loaded.overrides, "created_at": self.clock.wall()}
        with RunFolder.create(root, id) as folder:
            on_announced(RunAnnounced(id, loaded.steps, loaded.warnings))
            folder.describe(steps=list(STEPS), outputs=self.outputs, **about)
            catalog.add_run(RunRow(id=id, **about))
            recorder = RunRecorder(folder, self.clock, projection=PROJECTION, catalog=catalog, on_record=on_record)
            try:
                shell, error = self._play(recorder, folder, on_interrupt)
                recorder.finish(shell.job)
            finally:
                recorder.close()
        assert shell.job.outcome is not None
        state = {"succeeded": "succeeded", "failed": "failed", "cancelled": "terminated"}[shell.job.outcome.state]
        return SimpleNamespace(run_id=id, state=state, folder=folder.path, outputs=self.outputs, error=error)

    def _play(
        self, recorder: RunRecorder, folder: RunFolder, on_interrupt: Callable[[], None]
    ) -> tuple[Shell, WeftError | None]:
        shell = Shell(chain(), recorder, self.clock)
        for step in STEPS:
            folder.log_path(step).write_text(self.log.format(step=step))
            if step == "train":
                recorder.flush()
                self.during(folder)
                if self.cancel_by:
                    on_interrupt()
                    reason = f"interrupted by {self.cancel_by}"
                    shell.tick(CancelRequested(0.0, reason))
                    shell.tick(Failed(0.0, shell.lease, 0, step, 0, Failure.STOPPED, "stopped"))
                    return shell, RunCancelledError(f"chain was cancelled: {reason}")
            if step == self.fail:
                shell.fail(step, self.message)
                return shell, TaskError(self.message, task=f"{step}[0]", hint="read the log")
            shell.succeed()
        return shell, None


class World:
    """Runs command lines in a folder; what they printed is in `out` and `err`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock(START)
        self.wiring = FakeWiring(self.clock)
        self.environ = {"XDG_STATE_HOME": str(folder / "xdg-state"), "XDG_CONFIG_HOME": str(folder / "xdg-config")}
        self.out = self.err = ""
        self.pauses: list[Callable[[], None]] = []
        (folder / "run.yaml").touch()

    def __call__(self, *words: str, out: io.StringIO | None = None, err: io.StringIO | None = None) -> int:
        streams = out or io.StringIO(), err or io.StringIO()
        context = CommandContext(
            out=streams[0],
            err=streams[1],
            environ=self.environ,
            cwd=self.folder,
            clock=self.clock,  # type: ignore[arg-type]
            wiring=lambda: self.wiring,
            pause=lambda _: self.pauses.pop(0)(),
        )
        code = main(words, context)
        self.out, self.err = (stream.getvalue() for stream in streams)
        return code
