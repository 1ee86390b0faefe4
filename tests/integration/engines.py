"""Container engines for tests: a program called podman that runs everything on this machine, true Podman and Docker."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

TRIAL = f"weft-trial-{os.getpid()}"
IMAGE = f"localhost/weft-replica:{os.getpid()}"
"""Names that no other process of the tests uses at the same time."""
FAKE = f"""#!{sys.executable} -IS
import json, os, signal, subprocess, sys, time
here, args = os.path.dirname(os.path.abspath(__file__)), sys.argv[1:]
def place(kind, name=""):
    return os.path.join(here, kind, name)
def read(path):
    with open(path) as file:
        return json.load(file)
def write(path, value):
    with open(path + ".new", "w") as file:
        json.dump(value, file)
    os.replace(path + ".new", path)
def parsed(words, flags=()):
    options, at = {{}}, 0
    while at < len(words) and words[at].startswith("--"):
        options.setdefault(words[at], []).append(words[at + 1])
        at += 1 if words[at] in flags else 2
    return options, words[at:]
def labelled(kind, words):
    wanted = words[words.index("--filter") + 1].removeprefix("label=")
    return [name for name in os.listdir(place(kind))
            if not name.endswith(".new") and wanted in read(place(kind, name))["labels"]]
def end(name, number):
    try:
        os.killpg(read(place("containers", name))["pid"], number)
    except (FileNotFoundError, ProcessLookupError):
        pass
with open(os.path.join(here, "asked"), "a") as log:
    log.write(json.dumps(args) + "\\n")
if args[0] == "version":
    print("4.3.1")
elif args[:2] == ["image", "inspect"]:
    found = read(os.path.join(here, "images")).get(args[-1])
    print(found) if found else sys.exit("No such image")
elif args[0] == "pull":
    write(os.path.join(here, "images"), read(os.path.join(here, "images")) | {{args[-1]: "sha256:" + "b" * 64}})
elif args[:2] == ["network", "create"]:
    options, (name,) = parsed(args[2:])
    write(place("networks", name), {{"labels": options["--label"]}})
elif args[:2] == ["network", "ls"]:
    print("\\n".join(labelled("networks", args)))
elif args[:2] == ["network", "rm"]:
    for name in args[2:]:
        os.unlink(place("networks", name))
elif args[0] == "ps":
    print("\\n".join(labelled("containers", args)))
elif args[0] == "inspect":
    print("true" if os.path.exists(place("containers", args[-1])) else "false")
elif args[0] == "kill":
    end(args[-1], getattr(signal, "SIG" + args[2]))
elif args[0] == "rm":
    for name in args[2:]:
        end(name, signal.SIGKILL)
        try:
            os.unlink(place("containers", name))
        except FileNotFoundError:
            pass
elif args[0] == "exec":
    container = read(place("containers", args[1]))
    sys.exit(subprocess.call(args[2:], env=container["env"], cwd=container["cwd"]))
elif args[0] == "run":
    options, (image, *words) = parsed(args[1:], ("--rm", "--init"))
    env = dict(pair.split("=", 1) if "=" in pair else (pair, os.environ[pair]) for pair in options.get("--env", ()))
    env.setdefault("PATH", "/usr/bin:/bin")
    env["HOSTNAME"] = options.get("--hostname", [""])[0]
    cwd = options.get("--workdir", [here])[0]
    child = subprocess.Popen([*options.get("--entrypoint", ()), *words] or ["echo", "started"], cwd=cwd, env=env,
                             stdin=subprocess.DEVNULL, start_new_session=True)
    name = options["--name"][0]
    write(place("containers", name), {{"labels": options["--label"], "pid": child.pid, "env": env, "cwd": cwd}})
    code = child.wait()
    end(name, signal.SIGKILL)
    try:
        os.unlink(place("containers", name))
    except FileNotFoundError:
        pass
    sys.exit(code if code >= 0 else 128 - code)
else:
    sys.exit("what is " + args[0])
"""


class FakePodman:
    """A folder with a program called podman that keeps containers and networks as files, and notes what it is asked.

    The command of a container is a process of this machine. A program called docker is there too, and does not answer.
    """

    name = "podman"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("containers", "networks", "work"):
            (folder / name).mkdir(parents=True)
        (folder / "podman").write_text(FAKE)
        (folder / "docker").write_text("#!/bin/sh\nexit 1\n")
        for name in ("podman", "docker"):
            (folder / name).chmod(0o755)
        (folder / "images").write_text(json.dumps({IMAGE: "sha256:" + "a" * 64}))

    @property
    def path(self) -> str:
        return f"{self.folder}:{os.environ['PATH']}"

    def asked(self, *words: str) -> list[list[str]]:
        lines = (self.folder / "asked").read_text().splitlines() if (self.folder / "asked").exists() else []
        return [found for line in lines if (found := json.loads(line))[: len(words)] == list(words)]

    def left(self, label: str) -> list[str]:
        """Return the containers and networks that are left."""
        return [*os.listdir(self.folder / "containers"), *os.listdir(self.folder / "networks")]


class TrueEngine:
    """Podman or Docker as it is installed, with an image of a busybox.

    A program that does not answer stands for the other one in `folder`, so that only this one can be taken.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        other = folder / ("docker" if name == "podman" else "podman")
        other.write_text("#!/bin/sh\nexit 1\n")
        other.chmod(0o755)
        self.path = f"{folder}:{os.environ['PATH']}"

    def ask(self, *words: str) -> str:
        return subprocess.run([self.name, *words], capture_output=True, text=True, check=True).stdout

    def containers(self) -> list[str]:
        """Return the names of the containers of the image."""
        return self.ask("ps", "--all", "--filter", f"ancestor={IMAGE}", "--format", "{{.Names}}").split()

    def left(self, label: str) -> list[str]:
        """Return the containers and networks with a label that are left."""
        chosen = ["--quiet", "--filter", f"label={label}"]
        return [word for one in (("ps", "--all"), ("network", "ls")) for word in self.ask(*one, *chosen).split()]


PROGRAMS = ("sh", "cat", "sleep", "test", "echo", "httpd", "wget", "mkdir", "hostname", "id", "ls", "touch", "true")


def true_engine(name: str, folder: Path) -> TrueEngine:
    """Return Podman or Docker with its image made; skip the test where it runs no container, with the reason."""
    made = TrueEngine(name, folder)
    if why := _why_not(name, folder):
        pytest.skip(why)
    return made


def remove_image(engine: TrueEngine) -> None:
    subprocess.run([engine.name, "rmi", "--force", IMAGE], capture_output=True, check=False)


def _why_not(name: str, folder: Path) -> str:
    box = Path("/bin/busybox")
    if shutil.which(name) is None:
        return f"there is no {name}"
    if not box.exists():
        return "there is no /bin/busybox to make an image of"
    image = folder / "image.tar"
    with tarfile.open(image, "w") as tar:
        tar.add(box, "bin/busybox")
        for program in PROGRAMS:
            link = tarfile.TarInfo(f"bin/{program}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    trial = ["run", "--rm", "--init", "--network", TRIAL, IMAGE, "sh", "-c", ":"]
    commands = [["import", str(image), IMAGE], ["network", "create", TRIAL], trial]
    try:
        for words in commands:
            done = subprocess.run([name, *words], capture_output=True, text=True, timeout=180, check=False)
            if done.returncode:
                return f"{name} {words[0]} does not work: {done.stderr.strip()[-200:]}"
    finally:
        subprocess.run([name, "network", "rm", TRIAL], capture_output=True, check=False)
    return ""
