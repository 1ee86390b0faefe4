"""A fake object store for tests, under URLs that begin with `objects://`."""

from hashlib import sha1
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFileSystem


class Objects(MemoryFileSystem):  # type: ignore[misc]
    """An object store in memory: each object has an ETag of its content, and what is read and written is counted."""

    protocol = ("objects",)
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    fetched: ClassVar[list[str]] = []
    sent: ClassVar[list[str]] = []
    error: Exception | None = None

    @classmethod
    def clear(cls) -> None:
        """Forget all objects, what was counted, and the error."""
        cls.store.clear()
        cls.pseudo_dirs[:] = [""]
        cls.fetched.clear()
        cls.sent.clear()
        cls.error = None

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("objects://", "memory://", 1)))

    def _told(self, about: dict[str, Any]) -> dict[str, Any]:
        if about["type"] == "directory":
            return about
        content = self.store[about["name"]].getvalue()
        return {"name": about["name"], "size": len(content), "type": "file", "ETag": f'"{sha1(content).hexdigest()}"'}

    def find(self, path, maxdepth=None, withdirs=False, detail=False, **kwargs):
        if self.error is not None:
            raise self.error
        found = super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=True, **kwargs)
        return {name: self._told(about) for name, about in found.items()}

    def info(self, path, **kwargs):
        return self._told(super().info(path, **kwargs))

    def get_file(self, rpath, lpath, **kwargs):
        self.fetched.append(rpath)
        return super().get_file(rpath, lpath, **kwargs)

    def put_file(self, lpath, rpath, **kwargs):
        if self.error is not None:
            raise self.error
        self.sent.append(rpath)
        return super().put_file(lpath, rpath, **kwargs)


fsspec.register_implementation("objects", Objects)
