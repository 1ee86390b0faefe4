"""What a command opens: the kernel tells the guardian of each file before the command gets it.

This code is loaded only for commands whose opened files are asked for; it imports nothing of Weft. `install` runs in
the child of the guardian between fork and exec: it adds a filter of system calls (`seccomp`) whose listener goes to the
guardian. All descendants of the command inherit the filter. Each call that opens, renames, links or executes a file
waits until the guardian has read its path (`CallListener`) and lets it go on, unchanged. See the manual pages
seccomp(2) and seccomp_unotify(2).

The filter needs the privilege of an administrator, or a command that cannot gain privileges (`no_new_privs`), such as
by `sudo`. Files that are opened through `io_uring`, or by another process on behalf of the command, are not seen.
"""

from __future__ import annotations

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
else:
    import _socket as socket

OPEN, CREATE, RENAME, LINK = "open", "creat", "rename", "link"
OPEN_AT, OPEN_AT_2, RENAME_AT, LINK_AT = "openat", "openat2", "renameat", "linkat"
EXECUTE, EXECUTE_AT = "execve", "execveat"
MACHINES: dict[str, tuple[int, int, dict[int, str]]] = {
    "x86_64": (
        0xC000003E,
        317,
        {
            2: OPEN,
            59: EXECUTE,
            82: RENAME,
            85: CREATE,
            86: LINK,
            257: OPEN_AT,
            264: RENAME_AT,
            265: LINK_AT,
            316: RENAME_AT,
            322: EXECUTE_AT,
            437: OPEN_AT_2,
        },
    ),
    "aarch64": (
        0xC00000B7,
        277,
        {
            37: LINK_AT,
            38: RENAME_AT,
            56: OPEN_AT,
            221: EXECUTE,
            276: RENAME_AT,
            281: EXECUTE_AT,
            437: OPEN_AT_2,
        },
    ),
}
"""By machine: the number of its architecture, that of `seccomp`, and those of the calls that the filter reports."""
PR_SET_NO_NEW_PRIVS = 38
SET_MODE_FILTER, NEW_LISTENER, WAIT_KILLABLE = 1, 1 << 3, 1 << 5
NOTIFY, ALLOW = 0x7FC00000, 0x7FFF0000
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
"""Instructions of the filter: load a word, jump, return."""
NUMBER_AT, ARCHITECTURE_AT = 0, 4
"""Where the filter finds the number of the call and the architecture."""
RECEIVE, SEND = 0xC0502100, 0xC0182101
GO_ON = 1
REQUEST = struct.Struct("=QIIiIQ6Q")
ANSWER = struct.Struct("=QqiI")
AT_FDCWD = (1 << 64) - 100
LONGEST_PATH = 4096
MOST_PATHS = 20_000
"""More paths than a key can be checked against: the command then counts as one that was not watched."""
MOST_MEMORIES = 64
AT_ONCE = 64
"""The most calls that the guardian lets go on before it looks at other events."""
SYSTEM = (b"/usr/", b"/lib", b"/etc/", b"/proc/", b"/sys/", b"/dev/", b"/bin/", b"/sbin/", b"/run/", b"/opt/", b"/nix/")
LIBRARIES = (b"/lib/python", b"/site-packages")
"""Folders of the system and of Python's packages, whose files are no inputs."""


def install(channel: socket.socket) -> None:
    """Report what this process and its descendants open, through a listener that is sent to a socket.

    Where the system refuses, the socket is closed without a listener, and nothing is reported.
    """
    machine = MACHINES.get(os.uname().machine)
    listener = -1 if machine is None or sys.platform != "linux" else _listener(*machine)
    if listener >= 0:
        channel.sendmsg([b"+"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, listener.to_bytes(4, sys.byteorder))])
        os.close(listener)
    channel.close()


def _listener(architecture: int, seccomp: int, calls: dict[int, str]) -> int:
    """Install the filter, and return its listener; -1 if the system refuses."""
    many = len(calls)
    steps = [
        (LOAD, 0, 0, ARCHITECTURE_AT),
        (JUMP_IF_EQUAL, 0, many + 1, architecture),
        (LOAD, 0, 0, NUMBER_AT),
        *((JUMP_IF_EQUAL, many - at, 0, number) for at, number in enumerate(calls)),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, NOTIFY),
    ]
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


def receive(channel: socket.socket) -> CallListener | None:
    """Return what a process that calls `install` opens from then on; None if the system does not tell it."""
    _, handed, _, _ = channel.recvmsg(1, socket.CMSG_SPACE(4))
    return CallListener(int.from_bytes(handed[0][2][:4], sys.byteorder)) if handed else None


class CallListener:
    """The paths that a command and its descendants have opened: `read`, `written` and `listed` (folders).

    Paths are absolute, those of `SYSTEM` and `LIBRARIES` left out. `complete` is whether all of them are there.
    """

    def __init__(self, listener: int) -> None:
        self.listener = listener
        self.calls = MACHINES[os.uname().machine][2]
        self.read: set[bytes] = set()
        self.written: set[bytes] = set()
        self.listed: set[bytes] = set()
        self.complete = True
        self._memories: dict[int, int] = {}
        self._request = bytearray(REQUEST.size)
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

    def report(self) -> tuple[list[bytes], list[bytes], list[bytes]] | None:
        """Return the paths that were read, written and listed; None if some are missing."""
        return (sorted(self.read), sorted(self.written), sorted(self.listed)) if self.complete else None

    def _note(self, pid: int, call: str, args: list[int]) -> None:
        if call in (OPEN, CREATE, EXECUTE):
            folder, text = AT_FDCWD, args[0]
        elif call in (RENAME, LINK):
            folder, text = AT_FDCWD, args[1]
        elif call in (RENAME_AT, LINK_AT):
            folder, text = args[2], args[3]
        else:
            folder, text = args[0], args[1]
        path = self._text(pid, text)
        if call in (EXECUTE, EXECUTE_AT):  # the memory of the new program is another one
            memory = self._memories.pop(pid, -1)
            if memory >= 0:
                os.close(memory)
        if path.startswith(SYSTEM) or not path:  # most are, and nothing more is needed for them
            return
        if not path.startswith(b"/"):
            number = folder & 0xFFFFFFFF
            place = f"/proc/{pid}/cwd" if number == AT_FDCWD & 0xFFFFFFFF else f"/proc/{pid}/fd/{number}"
            path = os.fsencode(os.readlink(place)) + b"/" + path
        path = os.path.normpath(path)
        if (path + b"/").startswith(SYSTEM) or any(part in path for part in LIBRARIES):
            return
        paths = self._paths(pid, call, args)
        if paths is not None:
            paths.add(path)
        if len(self.read) + len(self.written) + len(self.listed) > MOST_PATHS:
            self.complete = False
            self.read.clear()
            self.written.clear()
            self.listed.clear()

    def _paths(self, pid: int, call: str, args: list[int]) -> set[bytes] | None:
        """Return the set that the path of a call belongs to; None if the call neither reads nor writes."""
        if call in (EXECUTE, EXECUTE_AT):
            return self.read
        if call in (CREATE, RENAME, RENAME_AT, LINK, LINK_AT):
            return self.written
        flags = args[1] if call == OPEN else args[2]
        if call == OPEN_AT_2:
            flags = int.from_bytes(os.pread(self._memory(pid), 8, args[2]), sys.byteorder)
        if flags & os.O_PATH:
            return None
        if flags & (os.O_ACCMODE | os.O_CREAT | os.O_TRUNC):
            return self.written
        return self.listed if flags & os.O_DIRECTORY else self.read

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
