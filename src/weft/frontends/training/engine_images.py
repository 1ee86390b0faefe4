"""The images of jobs in isolation `container`: they are on this machine, or fetched where the file asks for it.

`imagePullPolicy: Always` fetches an image at each run, `IfNotPresent` one that is missing. Without either a missing
image is an error: nothing is fetched unasked, whatever the tag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from weft.frontends.training.compiler import POD
from weft.frontends.training.images import ImageRecipe
from weft.frontends.training.mpi import uses_mpi
from weft.model.errors import NotFoundError, UsageError
from weft.operators.network import container_engine

if TYPE_CHECKING:
    from weft.frontends.training.schema import Container, TrainingJob
    from weft.operators.containers import ContainerEngine

ALWAYS: Final = "Always"
IF_NOT_PRESENT: Final = "IfNotPresent"
_EAGER: Final = ("", "Never", IF_NOT_PRESENT, ALWAYS)
"""The policies, the most eager one last: it decides for an image of several containers."""


class EngineImages:
    """The images of the containers of jobs; `engine` is known after `why_not` or `take`."""

    def __init__(self, containers: Sequence[tuple[TrainingJob, Container]]) -> None:
        self._containers = containers
        self._ids: dict[str, str] = {}
        self.engine: ContainerEngine | None = None

    def why_not(self) -> str:
        """Return why the jobs cannot run in their images as they are here, "" if they can; nothing is fetched."""
        from weft.operators.containers import known_images  # most jobs run in none

        try:
            wanted = self._policies()
            self.engine = container_engine()
            found = known_images(self.engine, wanted, lambda _: None, pull=False)
        except NotFoundError:
            return "no container engine answers"
        except UsageError as error:
            return error.message
        missing = [image for image in wanted if image not in found]
        return f"{self.engine.kind} does not have it ({self.engine.kind} pull {missing[0]})" if missing else ""

    def take(self, note: Callable[[str], None]) -> Iterator[tuple[str, str]]:
        """Take the content of each image, fetched if its containers ask for it; yield images with who runs them.

        NotFoundError: no engine answers, an image is not here or cannot be fetched. UsageError: a job cannot run in
        images.
        """
        from weft.operators.containers import known_images

        policies = self._policies()
        engine = self.engine = self.engine or container_engine()
        for image, policy in policies.items():
            if policy == ALWAYS:
                note(f"{engine.kind} fetches the image {image} (imagePullPolicy: {ALWAYS})")
                found = {image: engine.pull(image)}
            else:
                found = known_images(engine, [image], note, pull=policy == IF_NOT_PRESENT)
            if image not in found:
                raise NotFoundError(
                    f"{engine.kind} has no image {image}, and nothing asks to fetch it",
                    hint=f"Run: {engine.kind} pull {image}. Or write imagePullPolicy: {IF_NOT_PRESENT} beside it.",
                )
            self._ids |= found
            yield image, engine.kind

    def recipe(self, image: str) -> ImageRecipe:
        """Return the recipe of an image, by the id of its content once that is known."""
        return ImageRecipe(image=image, engine_image=self._ids.get(image, image), origin="a container engine runs it")

    def _policies(self) -> dict[str, str]:
        """Return the images with the policy of each. UsageError: a job cannot run in images."""
        found: dict[str, str] = {}
        for job, one in self._containers:
            if job.kind != POD and uses_mpi(job):
                raise UsageError(
                    f"{job.kind} {job.name} cannot run in isolation container: MPI starts processes in its replicas",
                    hint="Use isolation namespace or ports.",
                )
            if not one.image or one.image.startswith("-"):
                raise UsageError(
                    f"container {one.name} of {job.name} has no image to run in: {one.image!r}", hint="Name one."
                )
            found[one.image] = max(found.get(one.image, ""), one.pull_policy, key=_EAGER.index)
        return found
