"""What a command opens: the kernel tells the guardian of each file before the command gets it.

This code is loaded only for commands whose opened files are asked for; it imports nothing of Weft. A thread of the
guardian has a filter of system calls (`seccomp`) whose listener belongs to the guardian, and starts the commands
(`FilteredThread`). All descendants of a command inherit the filter. Each call of `CALLS`, such as one that opens,
renames or executes a file, waits until the guardian has read its paths (`CallListener`) and lets it go on, unchanged.
Calls that only look at files (`stat`) are reported for commands that ask for that, since each program makes hundreds.
See the manual pages seccomp(2) and seccomp_unotify(2). In a fork of the guardian `install` adds the filter.

The filter needs the privilege of an administrator, or a command that cannot gain privileges (`no_new_privs`), such as
by `sudo`. Files that are opened through `io_uring`, or by another process on behalf of the command, are not seen.
"""

from __future__ import annotations

import _thread
import ctypes
import errno
import fcntl
import os
import select
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable
    from typing import Any, NoReturn
else:
    import _socket as socket

OPEN, CREATE, MAKE, SYMLINK, RENAME, LINK = "open", "create", "make", "symlink", "rename", "link"
REMOVE, FOLLOW, EXECUTE, LOOK = "remove", "follow", "execute", "look"
HERE = -1
CALLS: dict[str, tuple[str, tuple[tuple[int, int], ...]]] = {
    "open": (OPEN, ((HERE, 0),)),
    "openat": (OPEN, ((0, 1),)),
    "openat2": (OPEN, ((0, 1),)),
    "creat": (CREATE, ((HERE, 0),)),
    "mkdir": (MAKE, ((HERE, 0),)),
    "mkdirat": (MAKE, ((0, 1),)),
    "mknod": (MAKE, ((HERE, 0),)),
    "mknodat": (MAKE, ((0, 1),)),
    "symlink": (SYMLINK, ((HERE, 1),)),
    "symlinkat": (SYMLINK, ((1, 2),)),
    "rename": (RENAME, ((HERE, 0), (HERE, 1))),
    "renameat": (RENAME, ((0, 1), (2, 3))),
    "renameat2": (RENAME, ((0, 1), (2, 3))),
    "link": (LINK, ((HERE, 0), (HERE, 1))),
    "linkat": (LINK, ((0, 1), (2, 3))),
    "unlink": (REMOVE, ((HERE, 0),)),
    "rmdir": (REMOVE, ((HERE, 0),)),
    "unlinkat": (REMOVE, ((0, 1),)),
    "chdir": (FOLLOW, ((HERE, 0),)),
    "readlink": (FOLLOW, ((HERE, 0),)),
    "readlinkat": (FOLLOW, ((0, 1),)),
    "execve": (EXECUTE, ((HERE, 0),)),
    "execveat": (EXECUTE, ((0, 1),)),
    "stat": (LOOK, ((HERE, 0),)),
    "lstat": (LOOK, ((HERE, 0),)),
    "newfstatat": (LOOK, ((0, 1),)),
    "statx": (LOOK, ((0, 1),)),
    "access": (LOOK, ((HERE, 0),)),
    "faccessat": (LOOK, ((0, 1),)),
    "faccessat2": (LOOK, ((0, 1),)),
}
"""What the reported calls do, and where their paths are: the arguments with the folder, or `HERE`, and with the text.

A call with two paths has the old one first. The flags of `OPEN` follow its text.
"""
BY_NUMBER = ("execveat", "linkat", "readlinkat")
"""Calls in which an empty text stands for the file of the descriptor."""
EMPTY_PATH = 0x1000
FLAGS_OF = {"newfstatat": 3, "statx": 2, "faccessat2": 3}
"""The flag of calls that look at an open file, which are not reported, and the argument with their flags."""
NOTHING, EXISTENCE, STATES = 0, 1, 2
"""What a command asks of the files that it only looks at, as `weft.operators.looking` has it."""
MACHINES: dict[str, tuple[int, int, dict[int, str]]] = {
    "x86_64": (
        0xC000003E,
        317,
        {
            2: "open",
            4: "stat",
            6: "lstat",
            21: "access",
            59: "execve",
            80: "chdir",
            82: "rename",
            83: "mkdir",
            84: "rmdir",
            85: "creat",
            86: "link",
            87: "unlink",
            88: "symlink",
            89: "readlink",
            133: "mknod",
            257: "openat",
            258: "mkdirat",
            259: "mknodat",
            262: "newfstatat",
            263: "unlinkat",
            264: "renameat",
            265: "linkat",
            266: "symlinkat",
            267: "readlinkat",
            269: "faccessat",
            316: "renameat2",
            322: "execveat",
            332: "statx",
            437: "openat2",
            439: "faccessat2",
        },
    ),
    "aarch64": (
        0xC00000B7,
        277,
        {
            33: "mknodat",
            34: "mkdirat",
            35: "unlinkat",
            36: "symlinkat",
            37: "linkat",
            38: "renameat",
            48: "faccessat",
            49: "chdir",
            56: "openat",
            78: "readlinkat",
            79: "newfstatat",
            221: "execve",
            276: "renameat2",
            281: "execveat",
            291: "statx",
            437: "openat2",
            439: "faccessat2",
        },
    ),
}
"""By machine: the number of its architecture, that of `seccomp`, and those of the calls that the filter reports."""
PR_SET_NO_NEW_PRIVS = 38
SET_MODE_FILTER, NEW_LISTENER, WAIT_KILLABLE = 1, 1 << 3, 1 << 5
NOTIFY, ALLOW = 0x7FC00000, 0x7FFF0000
LOAD, JUMP_IF_EQUAL, JUMP_IF_SET, RETURN = 0x20, 0x15, 0x45, 0x06
"""Instructions of the filter: load a word, jump, return."""
NUMBER_AT, ARCHITECTURE_AT, ARGUMENTS_AT = 0, 4, 16
"""Where the filter finds the number of the call, the architecture, and the arguments, of eight bytes each."""
RECEIVE, SEND = 0xC0502100, 0xC0182101
GO_ON = 1
SET_FLAGS, SYNC_WAKE_UP = 0x40082104, 1
"""The call that sets flags of a listener, and that by which process and guardian take turns on one processor."""
SPAWN_SETSIGDEF, SPAWN_SETSID = 0x04, 0x80
SPAWN_BYTES = 1024
"""More than any C library needs for an object of `posix_spawn`."""
STACK_BYTES = 256 * 1024
REQUEST = struct.Struct("=QIIiIQ6Q")
ANSWER = struct.Struct("=QqiI")
AT_FDCWD = (1 << 64) - 100
LONGEST_PATH = 4096
MOST_PATHS = 20_000
"""More paths than a key can be checked against: the command then counts as one that was not watched."""
MOST_MEMORIES = 64
MOST_INTERPRETERS, LONGEST_LINE = 5, 256
"""How many programs the kernel looks at to find the one that runs, and how much of their first lines; see execve(2)."""
AT_ONCE = 64
"""The most calls that the guardian lets go on before it looks at other events."""
KINDS = (
    *("read", "written", "listed", "followed"),
    *("made", "updated", "linked", "removed_from", "taken", "code_of_others"),
)
"""The sets of paths that are reported, in the order of the fields of `weft.store.opened.OpenedFiles`."""
ABSENT, THERE_IS = b"", b"+"
"""What a look tells of a path: nothing is there, or something of which only that counts."""
KINDS_OF = {
    CREATE: ("written", "made"),
    MAKE: ("written",),
    SYMLINK: ("written", "made"),
    RENAME: ("written", "made"),
    LINK: ("written", "made"),
    REMOVE: ("removed_from",),
    FOLLOW: ("followed",),
}
FOLLOWING = (OPEN, CREATE, EXECUTE, LOOK)
THERE = {MAKE: False, SYMLINK: False, LINK: False, REMOVE: True}
"""The sets that the path of a call belongs to, which calls follow a link that it ends in, and whether those that
succeed need something to be there.
"""
SYSTEM = tuple(
    b"/%b/" % name
    for name in (
        *(b"bin", b"dev", b"etc", b"lib", b"lib32", b"lib64", b"libx32", b"nix", b"proc", b"sbin", b"sys", b"usr"),
        *(b"run/" + service for service in (b"dbus", b"lock", b"mount", b"nscd", b"systemd", b"udev", b"user")),
    )
)
COMPILED = b"/__pycache__/"
"""What the paths of compiled modules have, which Python replaces when their source has changed."""
PYTHON = (b".py", b".pyc")
"""How the paths of Python code end."""
DESCRIPTORS = (b"/proc/", b"/dev/fd/")
PACKAGES = (b"/site-packages/", b"/dist-packages/")
LIBRARIES = (b"/lib/python", b"/lib64/python")
"""Folders of the system, of the descriptors of processes, of packages, and how those of an interpreter's library begin.

Their files are no inputs, except what descriptors stand for.
"""


def install(channel: socket.socket, looks: int) -> None:
    """Report what this process and its descendants open, through a listener that is sent to a socket.

    Where the system refuses, the socket is closed without a listener, and nothing is reported. For `looks` see
    `CallListener`.
    """
    listener = install_filter(looks)
    if listener >= 0:
        channel.sendmsg([b"+"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, listener.to_bytes(4, sys.byteorder))])
        os.close(listener)
    channel.close()


def install_filter(looks: int) -> int:
    """Install the filter in this thread, and return its listener; -1 if the system refuses."""
    machine = MACHINES.get(os.uname().machine)
    if machine is None or sys.platform != "linux":
        return -1
    architecture, seccomp, calls = machine
    reported = {number: call for number, call in calls.items() if looks or CALLS[call][0] != LOOK}
    return _listener(architecture, seccomp, reported)


def _listener(architecture: int, seccomp: int, calls: dict[int, str]) -> int:
    flagged = [(number, FLAGS_OF[call]) for number, call in calls.items() if call in FLAGS_OF]
    others = [number for number, call in calls.items() if call not in FLAGS_OF]
    allow = 3 * len(flagged) + len(others)  # steps from the first one after the load of the number
    steps = [
        (LOAD, 0, 0, ARCHITECTURE_AT),
        (JUMP_IF_EQUAL, 0, allow + 1, architecture),
        (LOAD, 0, 0, NUMBER_AT),
    ]
    for at, (number, argument) in enumerate(flagged):
        steps += [
            (JUMP_IF_EQUAL, 0, 2, number),
            (LOAD, 0, 0, ARGUMENTS_AT + 8 * argument),
            (JUMP_IF_SET, allow - 3 * at - 3, allow - 3 * at - 2, EMPTY_PATH),
        ]
    steps += [(JUMP_IF_EQUAL, len(others) - at, 0, number) for at, number in enumerate(others)]
    steps += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, NOTIFY)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    for unprivileged in (False, True):
        if unprivileged and libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
            return -1
        for flags in (NEW_LISTENER | WAIT_KILLABLE, NEW_LISTENER):
            found: int = libc.syscall(seccomp, SET_MODE_FILTER, flags, program)
            if found >= 0:
                return found
            if ctypes.get_errno() != errno.EINVAL:  # an older kernel does not know the flag
                break
        if ctypes.get_errno() != errno.EACCES:
            return -1
    return -1


class FilteredThread:
    """A thread of the guardian with the filter, which starts commands; the other threads have none.

    `posix_spawn` and no fork: copying an interpreter takes longer than starting a shell. The thread and its filter stay
    for all commands of the guardian. `listener` is -1 where the system refuses the filter. `ignored` are signals that
    this process ignores, and commands must not; for `looks` see `CallListener`. OSError: the system has no room for a
    thread.
    """

    def __init__(self, ignored: tuple[int, ...], looks: int) -> None:
        self.listener = -1
        self._looks = looks
        self._libc = libc = ctypes.CDLL(None)
        self._nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._how, signals = ctypes.create_string_buffer(SPAWN_BYTES), ctypes.create_string_buffer(SPAWN_BYTES)
        libc.sigemptyset(signals)
        for number in ignored:
            libc.sigaddset(signals, number)
        libc.posix_spawnattr_init(self._how)
        libc.posix_spawnattr_setsigdefault(self._how, signals)
        libc.posix_spawnattr_setflags(self._how, ctypes.c_short(SPAWN_SETSIGDEF | SPAWN_SETSID))
        self._pid = ctypes.c_int()
        self._command: tuple[Any, ...] = ()
        self._error = 0
        self._work = _thread.allocate_lock()
        self._work.acquire()
        self._done, self._done_end = os.pipe()
        before = _thread.stack_size(STACK_BYTES)
        try:
            _thread.start_new_thread(self._run, ())
        except RuntimeError:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None
        finally:
            _thread.stack_size(before)
        os.read(self._done, 1)

    def start(
        self, program: bytes, argv: list[bytes], env: dict[bytes, bytes], output: int, errors: int, folder: bytes
    ) -> tuple[int, CallListener]:
        """Start a command of this folder in a session of its own; OSError: it cannot be started.

        Return its pid, and the listener for what it opens.
        """
        libc = self._libc
        streams = ctypes.create_string_buffer(SPAWN_BYTES)
        libc.posix_spawn_file_actions_init(streams)
        for number, stream in enumerate((self._nothing, output, errors)):
            libc.posix_spawn_file_actions_adddup2(streams, stream, number)
        variables = [b"%b=%b" % pair for pair in env.items()]
        words, given = ((ctypes.c_char_p * (len(some) + 1))(*some) for some in (argv, variables))
        self._command = ctypes.byref(self._pid), program, streams, self._how, words, given
        opened = CallListener(os.dup(self.listener), folder, self._looks)
        self._work.release()
        opened.serve_until(self._done)  # the execution of the command waits for this too
        os.read(self._done, 1)
        libc.posix_spawn_file_actions_destroy(streams)
        if self._error:
            opened.close()
            raise OSError(self._error, os.strerror(self._error))
        return self._pid.value, opened

    def _run(self) -> NoReturn:
        """Start one command after the other. Whatever opens a file here would wait for the guardian."""
        self.listener = install_filter(self._looks)
        while True:
            os.write(self._done_end, b"+")
            self._work.acquire()
            self._error = self._libc.posix_spawn(*self._command)


def receive(
    channel: socket.socket, folder: bytes, looks: int, binds: Iterable[tuple[bytes, bytes, bool]] = ()
) -> CallListener | None:
    """Return what a process that calls `install` in a folder opens from then on; None if the system does not tell.

    For `looks` and its mounts `binds` see `CallListener`.
    """
    _, handed, _, _ = channel.recvmsg(1, socket.CMSG_SPACE(4))
    return CallListener(int.from_bytes(handed[0][2][:4], sys.byteorder), folder, looks, binds) if handed else None


def _longest_first(pair: tuple[bytes, bytes]) -> int:
    return -len(pair[0])


class CallListener:
    """The paths that a command and its descendants have opened, by `KINDS`.

    Paths are absolute, those of the system and of libraries left out. What lies below the folder of the command counts
    wherever that is. `binds` are the mounts that only the command has, each with its source, its target, and whether it
    is read-only: what it opens below a target is told by the path of this process. `complete` is whether all paths are
    there.

    `looked` is what a command first saw of a path that it only looked at: `ABSENT`, `THERE_IS`, or, if `looks` is
    `STATES`, the size and time of change of a file. A path that was absent counts as what somebody else has made there
    once the command sees that: it may wait for it. What the command has written itself is not looked at.
    """

    def __init__(
        self, listener: int, folder: bytes, looks: int, binds: Iterable[tuple[bytes, bytes, bool]] = ()
    ) -> None:
        self.listener = listener
        self.looks = looks
        self.looked: dict[bytes, bytes] = {}
        self.calls = MACHINES[os.uname().machine][2]
        self.found: dict[str, set[bytes]] = {kind: set() for kind in KINDS}
        self.complete = True
        self._binds = sorted(((target, source) for source, target, _ in binds), key=_longest_first)
        self._below = os.path.realpath(self._outside(folder)) + b"/"
        self._own_links: set[bytes] = set()
        self._libraries: dict[bytes, bool] = {}
        self._installed: set[bytes] = set()
        self._memories: dict[int, int] = {}
        self._first = 0
        self._request = bytearray(REQUEST.size)
        try:  # noqa: SIM105
            fcntl.ioctl(listener, SET_FLAGS, SYNC_WAKE_UP)
        except OSError:  # an older kernel does not know it
            pass
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)

    def take_some(self) -> None:
        """Take the calls that wait, some of them at once: programs open many files when they start."""
        for _ in range(AT_ONCE):
            self.take()
            if not any(what & select.POLLIN for _, what in self._poll.poll(0)):
                return

    def serve_until(self, report: int) -> None:
        """Take calls until a descriptor is readable or closed at its other end."""
        poll = select.poll()
        poll.register(report, select.POLLIN)
        poll.register(self.listener, select.POLLIN)
        while not any(fd == report for fd, _ in poll.poll()):
            self.take()

    def take(self) -> None:
        """Note the path of one call that waits, and let it go on."""
        self._request[:] = bytes(REQUEST.size)
        try:
            fcntl.ioctl(self.listener, RECEIVE, self._request)
        except OSError:  # its process has ended meanwhile
            return
        id, pid, _, number, _, _, *args = REQUEST.unpack(self._request)
        try:
            if self.complete:
                self._note(pid, self.calls[number], args)
        except OSError:  # it has ended, or may not be looked at
            pass
        try:  # noqa: SIM105
            fcntl.ioctl(self.listener, SEND, ANSWER.pack(id, 0, 0, GO_ON))
        except OSError:
            pass

    def close(self) -> None:
        """Close the listener: no process of the command is left."""
        for memory in self._memories.values():
            os.close(memory)
        os.close(self.listener)

    def report(self) -> tuple[list[list[bytes]], dict[bytes, bytes]] | None:
        """Return the paths of all `KINDS`, and what is `looked` at; None if some are missing."""
        beside = tuple({os.path.dirname(library) + b"/" for library, is_one in self._libraries.items() if is_one})

        def counts(path: bytes) -> bool:  # what an interpreter loads before its own library tells where it is
            return path.startswith(self._below) or not path.startswith(beside)

        if not self.complete:
            return None
        looked = {path: seen for path, seen in self.looked.items() if counts(path)}
        return [sorted(filter(counts, self.found[kind])) for kind in KINDS], looked

    def _note(self, pid: int, call: str, args: list[int]) -> None:
        what, places = CALLS[call]
        self._first = self._first or pid  # nobody but the process of the command can make the first call
        if what == LOOK:
            self._look(self._path(pid, call, AT_FDCWD if places[0][0] == HERE else args[0], args[places[0][1]]))
            return
        paths = [
            self._path(pid, call, AT_FDCWD if folder == HERE else args[folder], args[text]) for folder, text in places
        ]
        if what == EXECUTE:  # the memory of the new program is another one
            memory = self._memories.pop(pid, -1)
            if memory >= 0:
                os.close(memory)
        *old, path = paths
        succeeds = all(self._has_source(source, what) for source in old if source)
        if what in (OPEN, EXECUTE) and path.endswith(PYTHON) and not self._is_first(pid):
            self.found["code_of_others"].add(path)
        if what == OPEN and path:
            self._open(path, self._flags(pid, call, args))
        elif path and what == EXECUTE:
            self._execute(pid, path)
        elif path and succeeds and (what not in THERE or os.path.lexists(path) == THERE[what]):
            if what == REMOVE and path in self.found["read"]:
                self.found["taken"].add(path)
            if what in (CREATE, RENAME):
                self._note_overwritten(path)
            for kind in KINDS_OF[what]:
                self.found[kind].add(path if what != REMOVE else os.path.dirname(path))
            if what == SYMLINK or (what == RENAME and old[0] in self._own_links):
                self._own_links.add(path)
        if sum(len(self.found[kind]) for kind in KINDS[:4]) > MOST_PATHS:  # the others are among these
            self.complete = False
            for found in self.found.values():
                found.clear()

    def _is_first(self, thread: int) -> bool:
        """Whether a thread belongs to the process of the command itself, and not to one that this has started."""
        return thread == self._first or os.path.exists(f"/proc/{self._first}/task/{thread}")

    def _look(self, path: bytes) -> None:
        """Note a path that is looked at."""
        seen = self.looked.get(path)
        if not path or seen or not self.looks or path in self.found["written"]:
            return
        self.looked[path] = self._seen(path)
        if len(self.looked) > MOST_PATHS:  # what is opened counts all the same
            self.looks = NOTHING
            self.looked.clear()

    def _seen(self, path: bytes) -> bytes:
        """Return what a look tells of a path now."""
        try:
            found = os.stat(path)
        except OSError:
            return ABSENT
        is_folder = found.st_mode & 0o170000 == 0o040000  # `stat` is a module that no guardian has loaded
        return THERE_IS if is_folder or self.looks != STATES else b"%d %d" % (found.st_size, found.st_mtime_ns)

    def _execute(self, pid: int, path: bytes) -> None:
        """Note a program, and the interpreters that first lines name: the kernel opens these without a call."""
        for _ in range(MOST_INTERPRETERS):
            self.found["read"].add(path)
            try:
                file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # of a pipe, nobody might write to it
            except OSError:  # such as one that is not there
                return
            try:
                first, _, _ = os.read(file, LONGEST_LINE).partition(b"\n")
            finally:
                os.close(file)
            named = first[2:].split(None, 1) if first.startswith(b"#!") else []
            path = self._counted(pid, AT_FDCWD, named[0], follows=True) if named else b""
            if not path:
                return

    def _has_source(self, path: bytes, what: str) -> bool:
        """Note the old path of a file that gets another one, and return whether it is there."""
        self.found["read"].add(path)
        there = os.path.lexists(path)
        if there:
            if what == LINK:
                self.found["linked"].add(path)
            else:
                self.found["removed_from"].add(os.path.dirname(path))
                self.found["taken"].add(path)
        return there

    def _flags(self, pid: int, call: str, args: list[int]) -> int:
        if call == "openat2":
            return int.from_bytes(os.pread(self._memory(pid), 8, args[2]), sys.byteorder)
        return args[1] if call == "open" else args[2]

    def _open(self, path: bytes, flags: int) -> None:
        """Note a path that is opened."""
        found = self.found
        if flags & os.O_PATH:
            found["followed"].add(path)
        elif flags & os.O_TMPFILE == os.O_TMPFILE:  # a file without a name, in the folder of this path
            return
        elif not flags & (os.O_ACCMODE | os.O_CREAT | os.O_TRUNC):
            found["listed" if flags & os.O_DIRECTORY else "read"].add(path)
        else:
            if flags & (os.O_TRUNC | os.O_EXCL) or self._begins(path, flags):
                found["made"].add(path)
            elif flags & os.O_ACCMODE == os.O_RDWR and path not in found["written"]:
                found["updated"].add(path)
            self._note_overwritten(path)
            found["written"].add(path)

    def _note_overwritten(self, path: bytes) -> None:
        """Note a path that is about to be written, if what the command reads there is not its own work."""
        if path in self.found["read"] and path not in self.found["written"] and COMPILED not in path:
            self.found["updated"].add(path)

    def _begins(self, path: bytes, flags: int) -> bool:
        """Whether a file begins with this call, and is none that several programs add to."""
        new = flags & os.O_CREAT and not flags & os.O_APPEND and path not in self.found["written"]
        return bool(new) and not os.path.lexists(path)

    def _path(self, pid: int, call: str, folder: int, text: int) -> bytes:
        """Return the absolute path of a call at an address of a process; empty: it is none of interest."""
        path = self._text(pid, text)
        if not path and call in BY_NUMBER:
            path = b"."
        return self._counted(pid, folder, path, follows=CALLS[call][0] in FOLLOWING)

    def _counted(self, pid: int, folder: int, path: bytes, *, follows: bool) -> bytes:
        """Return the absolute path of one that a process has from a folder, or empty; with its last link or without."""
        if path.startswith(DESCRIPTORS):
            path = self._behind(pid, path)
        if path.startswith(b"/"):
            path = self._outside(path)
        if not path or (path.startswith(SYSTEM) and not path.startswith(self._below)):  # most are
            return b""
        above = os.path.dirname(path) if path.startswith(b"/") and b"/.." not in path else b""
        if above in self._installed and not self._own_links:  # so are most of the others
            return b""
        if not path.startswith(b"/"):
            number = folder & 0xFFFFFFFF
            place = f"/proc/{pid}/cwd" if number == AT_FDCWD & 0xFFFFFFFF else f"/proc/{pid}/fd/{number}"
            path = self._outside(os.fsencode(os.readlink(place)) + b"/" + path)
        path = self._without_ups(path)
        if self._own_links:
            path = self._without_own_links(path, follows=follows)
        if not self._is_installed(path):
            return path
        if above and self._is_installed(above):
            self._installed.add(above)
        return b""

    def _outside(self, path: bytes) -> bytes:
        """Return an absolute path of the command as this process has it."""
        if not self._binds:
            return path
        normal = os.path.normpath(path)
        for target, source in self._binds:
            if normal == target or normal.startswith(target + b"/"):
                return source + normal[len(target) :]
        return path

    def _without_own_links(self, path: bytes, *, follows: bool) -> bytes:
        """Return a path without the links that the command has made, which may be gone at its end."""
        head = path if follows else os.path.dirname(path)
        place = head
        while len(place) > 1:
            if place in self._own_links:
                return os.path.realpath(head) + path[len(head) :]
            place = os.path.dirname(place)
        return path

    def _is_installed(self, path: bytes) -> bool:
        """Whether a path is one of the system, of a package, or of an interpreter's own library."""
        inside = (path + b"/").startswith(self._below)
        if not inside and (path + b"/").startswith(SYSTEM):
            return True
        judged = path[len(self._below) - 1 :] + b"/" if inside else path + b"/"
        return any(part in judged for part in PACKAGES) or any(
            self._has_library(judged, path[: len(path) + 1 - len(judged)], part) for part in LIBRARIES
        )

    def _has_library(self, path: bytes, above: bytes, beginning: bytes) -> bool:
        """Whether a path below another one leads through the library of an interpreter, which it knows by `os.py`."""
        at = path.find(beginning)
        while at >= 0:
            end = path.index(b"/", at + len(beginning))
            library = above + path[:end]
            if library not in self._libraries:
                self._libraries[library] = os.path.exists(library + b"/os.py")
            if self._libraries[library]:
                return True
            at = path.find(beginning, end)
        return False

    def _behind(self, pid: int, path: bytes) -> bytes:
        """Return what a path means that leads through a descriptor or a folder of a process; empty: no file."""
        parts = path.split(b"/", 5)  # "", "proc", the process, "fd", the number, the rest
        if parts[1] == b"dev":
            parts = [b"", b"proc", b"self", *path.split(b"/", 4)[2:]]
        own = parts[2] in (b"self", b"thread-self")
        steps = 5 if parts[3:4] == [b"fd"] else 4 if parts[3:4] in ([b"cwd"], [b"root"]) else 0
        if not steps or len(parts) < steps or not (own or parts[2].isdigit()):
            return b""
        process = b"%d" % pid if own else parts[2]
        target = os.readlink(b"/".join((b"/proc", process, *parts[3:steps])))
        if not target.startswith(b"/") or target.endswith(b" (deleted)"):
            return b""
        return b"/".join((target.rstrip(b"/"), *parts[steps:])) or b"/"

    def _without_ups(self, path: bytes) -> bytes:
        """Return a normal path: the folder above one that a link leads to is that of the link's target."""
        while (at := (path + b"/").find(b"/../", 1)) > 0:
            folder = os.path.normpath(path[:at])
            real = os.path.realpath(folder)
            if real != folder:
                self.found["followed"].add(folder)
            path = os.path.dirname(real).rstrip(b"/") + path[at + 3 :] or b"/"
        return os.path.normpath(path)

    def _text(self, pid: int, at: int) -> bytes:
        """Return the path at an address of a process; OSError: it has none there, or has ended."""
        data = os.pread(self._memory(pid), LONGEST_PATH, at)
        end = data.find(b"\0")
        if end < 0:
            raise OSError(errno.ENAMETOOLONG, "no path")
        return data[:end]

    def _memory(self, pid: int) -> int:
        if pid not in self._memories:
            if len(self._memories) >= MOST_MEMORIES:
                os.close(self._memories.pop(next(iter(self._memories))))
            self._memories[pid] = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        return self._memories[pid]
