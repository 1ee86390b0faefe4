"""Notices about the end of a run: sent to a URL by POST, or given to a command on its standard input."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from weft.model.errors import UsageError
from weft.model.patterns import late_pattern
from weft.runtime.clock import RealClock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

POST_S: Final = 10.0
COMMAND_S: Final = 30.0
"""The seconds that a URL, and a command, may take."""
SECRET: Final = "secret:"
"""The beginning of a setting that names the secret whose value is the URL."""
_MOST: Final = 2048
_LOOK_S: Final = 0.1
_SECRET_NAME: Final = late_pattern(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_SCHEME: Final = late_pattern(r"[A-Za-z][A-Za-z0-9+.-]*://")


def valid_notify(text: str, folder: Path) -> str:
    """Return the setting for notices: a URL of http or https, `secret:NAME`, or a command. UsageError: it is none.

    A relative path of a command begins at `folder`.
    """
    if len(text) > _MOST or not text.isprintable():
        raise UsageError(f"notify must be one line of at most {_MOST} characters")
    if text.startswith(SECRET):
        if not _SECRET_NAME.fullmatch(text.removeprefix(SECRET)):
            raise UsageError("notify does not name a secret after `secret:`", hint="For example: secret:HOOK_URL")
    elif _SCHEME.match(text):
        _checked_url(text)
    elif text:
        program, *arguments = _words(text)
        if "/" in program:
            return shlex.join([str(folder.absolute() / Path(program).expanduser()), *arguments])
    return text


def shown_notify(text: str) -> str:
    """Return the setting as people may see it: paths, queries and passwords of URLs are often secret."""
    if not _SCHEME.match(text):
        return text
    parts = urlsplit(text)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}/***"


def notice_sender(
    text: str, secret: Callable[[str], str], interrupted: Callable[[], bool] = lambda: False
) -> Callable[[Mapping[str, Any]], str]:
    """Return the function that sends a notice, and returns why it could not, or "".

    `secret` returns the value of a secret, and `interrupted` whether the sending is to end. UsageError: the secret is
    missing, or is no URL of http or https.
    """
    if text.startswith(SECRET):
        text = secret(text.removeprefix(SECRET)).strip()
        if not _SCHEME.match(text):
            raise UsageError("the secret that notify names is not a URL", hint="It must begin with https:// or http://")
    if _SCHEME.match(text):
        url = _checked_url(text)
        return lambda notice: _post_in_time(url, notice, interrupted)
    words = _words(text)
    return lambda notice: _call(words, notice, interrupted)


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme.lower() in ("http", "https") and parts.hostname and (parts.port or 1)
    except ValueError:
        usable = False
    if not usable or " " in url or not url.isascii():
        raise UsageError("notify is no URL of http or https with a host", hint="For example: https://example.org/hook")
    return url


def _words(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"notify is no command: {error}", hint="Close the quotes.") from None
    if not words:
        raise UsageError("notify is an empty command")
    return words


def _post_in_time(url: str, notice: Mapping[str, Any], interrupted: Callable[[], bool]) -> str:
    """Send a notice as `_post` does, and give up after its time: the limit of a socket holds for each read alone."""
    import threading

    problems: list[str] = []
    thread = threading.Thread(target=lambda: problems.append(_post(url, notice)), name="weft-notice", daemon=True)
    thread.start()
    clock = RealClock()
    end = clock.now() + POST_S
    while thread.is_alive():
        if interrupted():
            return f"{shown_notify(url)} had not answered when the wait was interrupted"
        if (left := end - clock.now()) <= 0:
            return f"{shown_notify(url)} did not answer within {POST_S:g} s"
        thread.join(min(_LOOK_S, left))
    return problems[0] if problems else f"{shown_notify(url)} did not answer"


def _post(url: str, notice: Mapping[str, Any]) -> str:
    """Send a notice as JSON by POST; redirects are not followed, since they could lead anywhere."""
    import json
    from base64 import b64encode
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.parse import unquote
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class Nowhere(HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    parts, where = urlsplit(url), shown_notify(url)
    headers = {"Content-Type": "application/json", "User-Agent": "weft"}
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = f"Basic {b64encode(login.encode()).decode()}"
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    request = Request(bare, json.dumps(notice).encode(), headers, method="POST")
    try:
        with build_opener(Nowhere).open(request, timeout=POST_S) as answer:
            answer.read(1 << 16)
    except HTTPError as error:
        error.close()
        return f"{where} answered {error.code}"
    except URLError as error:
        return f"{where} cannot be reached: {error.reason}"
    except (OSError, HTTPException, ValueError) as error:
        return f"{where} did not answer: {type(error).__name__}"
    return ""


def _call(words: list[str], notice: Mapping[str, Any], interrupted: Callable[[], bool]) -> str:
    """Run a command with a notice as JSON on its standard input; after its time, end all of its processes."""
    import json
    import signal
    import subprocess
    from contextlib import suppress

    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        return f"{words[0]} cannot be started: {error.strerror}"
    data: bytes | None = json.dumps(notice).encode()
    clock = RealClock()
    end, why = clock.now() + COMMAND_S, ""
    try:
        while not why:
            try:
                process.communicate(data, timeout=min(_LOOK_S, max(end - clock.now(), 0)))
                break
            except subprocess.TimeoutExpired:
                data = None  # it is on its way
            if interrupted():
                why = "was killed, because the wait for it was interrupted"
            elif clock.now() >= end:
                why = f"did not end within {COMMAND_S:g} s and was killed"
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    code = process.returncode
    return f"{words[0]} {why}" if why else f"{words[0]} ended with exit code {code}" if code else ""
