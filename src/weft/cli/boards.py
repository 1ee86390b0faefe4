"""The command that shows the log folders of a run of training jobs: `weft tensorboard`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from weft.cli.arguments import Given, Where, service_of
from weft.cli.parsing import CommandParameter
from weft.model.errors import NotFoundError

if TYPE_CHECKING:
    from pathlib import Path


def tensorboard(
    run: Annotated[str, CommandParameter(help="An id, a unique prefix of one, a number, @last or @failed.")],
    /,
    *,
    port: Annotated[int | None, CommandParameter(help="The port; by default a free one.")] = None,
    where: Where,
    context: Given,
) -> None:
    """Serve the event files of a run of training jobs with TensorBoard, until Ctrl-C."""
    from weft.operators.tensorboard import AUTO, FOLDER, TensorBoardServer, find_tensorboard, reserve_port

    found = service_of(context, where).show(run)
    logs: Path = found.folder / FOLDER
    if not logs.is_dir():
        raise NotFoundError(
            f"{found.id} has no event files of TensorBoard",
            hint="Its programs write them to the folder in TENSORBOARD_LOGDIR.",
        )
    words = find_tensorboard([])
    ended: list[str] = []
    server = TensorBoardServer(
        words, logs, reserve_port(AUTO if port is None else str(port)), found.folder, ended.append
    )
    server.start()
    context.out.write(f"{server.address}\n")
    context.out.flush()
    context.say("press Ctrl-C to end TensorBoard")
    try:
        server.wait()
    finally:
        server.close()
    raise NotFoundError(ended[0], hint=f"Its output: {server.output}")
