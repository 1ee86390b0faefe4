"""Digests of what files and folders hold, without reading again what has not changed.

A digest is a text: a letter for the kind and the SHA-256 of the content. A folder's is made from the names, kinds and
digests of what is in it (a Merkle tree), so equal digests mean equal trees, wherever and whenever they were made.
Times, owners and permissions do not count, except whether a file can be executed.

What a file's digest was is kept with the file's stat: device, inode, size, and the times of its last change of content
and of anything. It is believed only if it was found when both times were older than `MARGIN_NS`: a file that was
changed just before it was read may be changed once more within the same tick of the file system's clock, with the same
stat. The time of the last change of anything cannot be set by a program, so a content put in place with the old time is
seen. For a folder the same is kept once for all files directly in it, so that an unchanged one costs a stat for each
file, one look-up, and no byte of content.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from weft.model.errors import ConflictError, ForbiddenError, InputLimitError, RunCancelledError
from weft.store.places import shown_path

FILE: Final = "f"
EXECUTABLE: Final = "x"
FOLDER: Final = "d"
LINK: Final = "l"
OTHER: Final = "o"
ABSENT: Final = "-"
"""The digest of a missing path, and the first letters of digests by kind."""
MARGIN_NS: Final = 2_000_000_000
DIGEST: Final = "sha256:"
"""The prefix of leaves with a digest of text: of these only a difference is reported."""
LEFT_OUT: Final = frozenset({b".pipeline", b".weft", b"__pycache__"})
"""Derived files beside the files of users: those of Weft itself, and of Python."""
MAX_DEPTH: Final = 256
_TRIES: Final = 3
_BLOCK: Final = 1 << 20


class Known(Protocol):
    """Recorded stats with their digests; see `weft.store.entries`."""

    def digest(self, device: int, inode: int, seen: str) -> str | None:
        """Return the recorded digest of the file with this stat, if any."""
        ...

    def note(self, device: int, inode: int, seen: str, digest: str) -> None:
        """Record the digest of the file with this stat."""
        ...

    def note_tree(self, digest: str, listing: bytes) -> None:
        """Record the content of a folder with this digest."""
        ...


class Item(NamedTuple):
    """One entry of a folder; `digest` begins with its kind. Of a link, `target` is its destination."""

    name: bytes
    digest: str
    target: bytes = b""


class Digester:
    """Computes digests; `bytes_read` and `files_seen` count the cost.

    `now_ns` returns the time in nanoseconds since 1970 by the clock of the file system. Names in `ignore` are left out
    of every folder. RunCancelledError: `stopped` became true.
    """

    def __init__(
        self,
        known: Known,
        now_ns: Callable[[], int],
        *,
        ignore: Collection[bytes] = frozenset(),
        margin_ns: int = MARGIN_NS,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.known = known
        self.now_ns = now_ns
        self.ignore = frozenset(ignore)
        self.margin_ns = margin_ns
        self.stopped = stopped
        self.bytes_read = 0
        self.files_seen = 0
        self._mark = b"\0".join(sorted(self.ignore))
        self._following: list[str] = []

    def of(self, path: str | os.PathLike[str]) -> str:
        """Return the digest of a path, links followed; ABSENT if it is missing.

        ConflictError: it keeps changing while it is read. ForbiddenError: it cannot be read. InputLimitError: folders
        are nested deeper than `MAX_DEPTH`.
        """
        place = os.fsencode(os.path.abspath(path))
        try:
            found = os.stat(place)
        except (FileNotFoundError, NotADirectoryError):
            return ABSENT
        except OSError as error:
            raise _unreadable(place, error) from None
        if stat.S_ISREG(found.st_mode):
            return self._read_before(found) or self._regular(os.path.realpath(place), found)
        if stat.S_ISDIR(found.st_mode):
            root = os.path.realpath(place)
            return self._folder(root, found, root, 0)
        return _thing(found)

    def of_all(self, paths: Sequence[str]) -> str:
        """Return the joint digest of several paths, in order; of one path its own."""
        return self.join([self.of(path) for path in paths])

    @staticmethod
    def join(digests: Sequence[str]) -> str:
        """Return the joint digest of several digests; of one its own."""
        return digests[0] if len(digests) == 1 else OTHER + hashlib.sha256("\n".join(digests).encode()).hexdigest()

    def newest(self, paths: Sequence[str]) -> int:
        """Return the newest time of change, in ns since 1970, of the paths and of all files below; -1: none exists.

        The documented rules use this time; programs can set it.
        """
        newest = -1
        for path in paths:
            try:
                newest = max(newest, os.stat(path).st_mtime_ns)
            except OSError:
                continue
            for folder, folders, files in os.walk(path):
                for name in (*folders, *files):
                    with suppress(OSError):
                        newest = max(newest, os.lstat(os.path.join(folder, name)).st_mtime_ns)
        return newest

    # ---------------------------------------------------------------------------------------------------- inside

    def _folder(self, path: bytes, found: os.stat_result, root: bytes, depth: int) -> str:
        if depth > MAX_DEPTH:
            raise InputLimitError(f"{shown_path(path)} is nested deeper than {MAX_DEPTH} folders")
        self._go_on()
        for _ in range(_TRIES):
            started = self.now_ns()
            try:
                with os.scandir(path) as scan:
                    entries = sorted(((e.name, e) for e in scan if e.name not in self.ignore), key=_name)
                digest = self._listed(path, found, root, depth, entries, started)
            except (FileNotFoundError, NotADirectoryError):  # files are removed meanwhile
                continue
            except OSError as error:
                raise _unreadable(path, error) from None
            if digest is not None:
                return digest
        raise _changing(path)

    def _go_on(self) -> None:
        if self.stopped():
            raise RunCancelledError("the digest is no longer needed")

    def _listed(
        self,
        path: bytes,
        found: os.stat_result,
        root: bytes,
        depth: int,
        entries: list[tuple[bytes, os.DirEntry[bytes]]],
        started: int,
    ) -> str | None:
        """Return the digest of a folder from its entries; None if a file changed meanwhile."""
        newest = 0
        seen: list[bytes] = [self._mark]
        things: list[tuple[bytes, str, os.stat_result | None]] = []
        for name, entry in entries:
            about = entry.stat(follow_symlinks=False)
            mode = about.st_mode
            if stat.S_ISREG(mode):
                changed, modified = about.st_ctime_ns, about.st_mtime_ns
                seen.append(
                    b"%b\0%b%d %d %d %d"
                    % (name, b"x" if mode & 0o111 else b"f", about.st_ino, about.st_size, modified, changed)
                )
                newest = max(newest, changed, modified)
                things.append((name, "", about))
                continue
            if stat.S_ISDIR(mode):
                digest = self._folder(b"%b/%b" % (path, name), about, root, depth + 1)
            elif stat.S_ISLNK(mode):
                digest = self._link(b"%b/%b" % (path, name), root)
            else:
                digest = _thing(about)
            seen.append(b"%b\0%b" % (name, digest.encode()))
            things.append((name, digest, None))
        self.files_seen += len(things)
        stamp = hashlib.sha256(b"\0\0".join(seen)).hexdigest()
        known = self.known.digest(found.st_dev, found.st_ino, stamp)
        if known is not None:
            return known
        items = []
        for name, digest, regular in things:
            if regular is not None:
                digest = self._read_before(regular) or self._file(b"%b/%b" % (path, name), regular, started)
                if not digest:
                    return None
            items.append(Item(name, digest, os.readlink(b"%b/%b" % (path, name)) if digest[0] == LINK else b""))
        listing = write_listing(items)
        digest = folder_digest(listing)
        self.known.note_tree(digest, listing)
        if newest + self.margin_ns <= started:
            self.known.note(found.st_dev, found.st_ino, stamp, digest)
        return digest

    def _link(self, path: bytes, root: bytes) -> str:
        """Return the digest of a link: its target text and, for a target outside of the digested tree, its content."""
        target = os.readlink(path)
        beyond = b""
        real = os.path.realpath(path)
        if real != root and not real.startswith(root.rstrip(b"/") + b"/"):
            shown = os.fsdecode(real)
            if shown not in self._following and len(self._following) < MAX_DEPTH:
                self._following.append(shown)
                try:
                    beyond = self.of(shown).encode()
                finally:
                    self._following.pop()
        return link_digest(target, beyond)

    def _regular(self, path: bytes, about: os.stat_result) -> str:
        for _ in range(_TRIES):
            started = self.now_ns()
            digest = self._file(path, about, started)
            if digest:
                return digest
            about = os.stat(path)
        raise _changing(path)

    def _read_before(self, about: os.stat_result) -> str:
        """Return the digest of a regular file with this stat; "" if it is not known."""
        known = self.known.digest(about.st_dev, about.st_ino, stamp_of(about))
        return _kind(about) + known if known is not None else ""

    def _file(self, path: bytes, about: os.stat_result, started: int) -> str:
        """Read a regular file with this stat and return its digest; "" if the stat has changed after the read."""
        seen = stamp_of(about)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise _unreadable(path, error) from None
        try:
            before = os.fstat(fd)
            if stamp_of(before) != seen or before.st_ino != about.st_ino:
                return ""
            content = hashlib.sha256()
            while block := os.read(fd, _BLOCK):
                self._go_on()
                content.update(block)
                self.bytes_read += len(block)
            if stamp_of(os.fstat(fd)) != seen:
                return ""
        except OSError as error:
            raise _unreadable(path, error) from None
        finally:
            os.close(fd)
        digest = content.hexdigest()
        if max(about.st_ctime_ns, about.st_mtime_ns) + self.margin_ns <= started:
            self.known.note(about.st_dev, about.st_ino, seen, digest)
        return _kind(about) + digest


def stamp_of(found: os.stat_result) -> str:
    """Return the part of a stat that changes with every change of a file's content."""
    return f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"


def folder_digest(listing: bytes) -> str:
    """Return the digest of a folder with this listing."""
    return FOLDER + hashlib.sha256(b"folder\0" + listing).hexdigest()


def link_digest(target: bytes, beyond: bytes = b"") -> str:
    """Return the digest of a link: its destination and, outside of the tree, the digest of the content there."""
    return LINK + hashlib.sha256(b"link\0%b\0%b" % (target, beyond)).hexdigest()


def write_listing(items: Sequence[Item]) -> bytes:
    """Return the entries of a folder as bytes, in the order of names."""
    return b"".join(b"%b %b\0%b\0" % (item.digest.encode(), item.name, item.target) for item in items)


def read_listing(listing: bytes) -> list[Item]:
    """Return the entries that `write_listing` wrote. ConflictError: the bytes are damaged."""
    parts = listing.split(b"\0")
    if len(parts) % 2 != 1 or parts[-1]:
        raise ConflictError("the listing of a stored folder is damaged", hint="See: weft doctor")
    found = []
    for at in range(0, len(parts) - 1, 2):
        digest, _, name = parts[at].partition(b" ")
        found.append(Item(name, digest.decode(), parts[at + 1]))
    return found


def _kind(about: os.stat_result) -> str:
    return EXECUTABLE if about.st_mode & 0o111 else FILE


def _thing(about: os.stat_result) -> str:
    """Return the digest of what is no file, folder or link."""
    return OTHER + hashlib.sha256(b"%d %d" % (stat.S_IFMT(about.st_mode), about.st_rdev)).hexdigest()


def _name(entry: tuple[bytes, os.DirEntry[bytes]]) -> bytes:
    return entry[0]


def _changing(path: bytes) -> ConflictError:
    return ConflictError(
        f"{shown_path(path)} keeps changing while it is read",
        hint="Wait until its writer ends, or leave it out of fs_scope.",
    )


def _unreadable(path: bytes, error: OSError) -> ForbiddenError:
    why = "too many links" if error.errno == errno.ELOOP else error.strerror
    return ForbiddenError(f"{shown_path(path)} cannot be read: {why}", hint="Check that you have read permission.")
