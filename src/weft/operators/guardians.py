"""Where guardians come from: one small process for each process that runs commands.

It is started by `open_guardhouse`, or when the first command is (some milliseconds), and forks guardians
(`weft/worker/guardian.py`, a program of its own that is started by its path), as many as there are commands at a time.
It ends with this process, however that ends.
"""

from __future__ import annotations

import array
import atexit
import os
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

from weft.model.errors import InternalError

# Imported and not run as a script: only imports keep their compiled form, and compiling takes 4 ms.
GUARDIAN = "import sys; sys.path.append(sys.argv[1]); import guardian; guardian.main()"
GUARDIAN_FOLDER = Path(__file__).parents[1] / "worker"
PATIENCE_S = 5.0
"""How long an ending process waits for its guardhouse, which has nothing left to do."""
IDLE = 16
"""Guardians that are kept for the next commands; what they need is some 2 MB each."""


class Guardhouse:
    """The process that forks guardians; started when it is first needed, and again if somebody has killed it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._door: socket.socket | None = None
        self._idle: list[socket.socket] = []

    def open(self) -> None:
        """Start the process if it is not there, without waiting for it; a first command that comes later needs not."""
        with self._lock, suppress(OSError):  # the first command says what is wrong
            if self._door is None:
                self._door = self._open()

    def start(self) -> socket.socket:
        """Return our end of the control socket of a guardian without work. InternalError if it cannot be started."""
        with self._lock:
            while self._idle:
                known = self._idle.pop()
                if _is_there(known):
                    return known
                known.close()
        try:
            ours, theirs = socket.socketpair()
            with theirs, ExitStack() as undo:
                undo.callback(ours.close)
                with self._lock:
                    try:
                        self._hand_over(theirs)
                    except (BrokenPipeError, ConnectionResetError):
                        self._close()
                        self._hand_over(theirs)
                undo.pop_all()
        except OSError as error:
            raise InternalError(
                f"the guardian of a command cannot be started: {error}",
                hint="See that the system has processes and files left.",
            ) from error
        return ours

    def take_back(self, control: socket.socket) -> None:
        """Keep a guardian for the next command that has said `again`, and to which nothing was sent since."""
        with self._lock:
            if self._door is not None and len(self._idle) < IDLE:
                self._idle.append(control)
                return
        control.close()

    def close(self) -> None:
        """End the process and the guardians without work; those that are at work go on without it."""
        with self._lock:
            self._close()

    def forget(self) -> None:
        """Let go of a process that is that of our parent: we are a copy of it."""
        self._lock = threading.Lock()
        if self._process is not None:
            self._process.returncode = 0
        for one in (self._door, *self._idle):
            if one is not None:
                one.close()
        self._process = self._door = None
        self._idle = []

    def _hand_over(self, control: socket.socket) -> None:
        if self._door is None:
            self._door = self._open()
        handle = array.array("i", [control.fileno()])
        self._door.sendmsg([b"+"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, handle)])

    def _open(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs, ExitStack() as undo:
            undo.callback(ours.close)
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", GUARDIAN, str(GUARDIAN_FOLDER), str(os.getpid())],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,  # a Ctrl-C at the terminal is for the owner
            )
            undo.pop_all()
        return ours

    def _close(self) -> None:
        for one in self._idle:
            with suppress(OSError):
                one.shutdown(socket.SHUT_WR)
        for one in self._idle:
            one.settimeout(PATIENCE_S)
            with one, suppress(OSError):
                one.recv(1)  # until it has ended
        self._idle = []
        if self._door is not None:
            self._door.close()
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE_S)
        self._process = self._door = None


def _is_there(control: socket.socket) -> bool:
    """Tell whether the guardian at the other end lives: without work it says nothing, and its end ends the socket."""
    try:
        control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


_HOUSE = Guardhouse()
open_guardhouse = _HOUSE.open
start_guardian = _HOUSE.start
take_back_guardian = _HOUSE.take_back
close_guardhouse = _HOUSE.close
atexit.register(_HOUSE.close)
os.register_at_fork(after_in_child=_HOUSE.forget)
