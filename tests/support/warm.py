"""``python -c`` at the price of a fork: a warm interpreter runs the code in a child of its own for each request.

The child is a process like any other: its arguments, environment, folder and streams are those that are asked for, the code runs as
``__main__``, and the interpreter ends as it always does. Two things differ from a new interpreter: the modules of the program are
loaded already, and the children of one server hash words alike. A test about start-up or about either of these starts a new one."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import select
import signal
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

#: The server's whole program: what a fork is to run, it runs in the namespace of its ``__main__``.
_SERVER = "from tests.support.warm import serve; exec(serve())"
_TIMEOUT_S = 60


def starts_alike(environment: dict[str, str], other: dict[str, str]) -> bool:
    """Whether the variables that an interpreter reads when it starts are the same in both."""
    first, second = ({k: v for k, v in e.items() if k.startswith(("PYTHON", "LC_")) or k == "LANG"} for e in (environment, other))
    return first == second


def cold(
    code: str, arguments: tuple[str, ...], environment: dict[str, str], cwd: Path, merged: bool = False
) -> tuple[int, bytes, bytes]:
    """As ``Interpreter.run``, in a new interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if merged else subprocess.PIPE,
        timeout=_TIMEOUT_S,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr or b""


class Interpreter:
    """A warm interpreter, started in this environment and in this folder, from which ``tests`` can be imported."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        self.environment = environment
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SERVER],
            env=environment,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # Ctrl-C ends the tests, and these the server
        )
        atexit.register(self.close)

    def run(
        self, code: str, arguments: tuple[str, ...], environment: dict[str, str], cwd: Path, merged: bool = False
    ) -> tuple[int, bytes, bytes]:
        """Exit code, standard output and error; ``merged`` sends both to the first. Raises TimeoutExpired after a minute."""
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder, "stdout"), Path(folder, "stderr")
            streams = [os.devnull, str(out), str(out if merged else err)]
            asked = {"code": code, "arguments": arguments, "environment": environment, "cwd": str(cwd), "streams": streams}
            self.process.stdin.write(json.dumps(asked).encode() + b"\n")
            child = self._told()
            late = not select.select([self.process.stdout], [], [], _TIMEOUT_S)[0]
            if late:
                os.kill(child, signal.SIGKILL)
            status = self._told()
            if late:
                raise subprocess.TimeoutExpired([sys.executable, "-c", code, *arguments], _TIMEOUT_S)
            return os.waitstatus_to_exitcode(status), out.read_bytes(), b"" if merged else err.read_bytes()

    def _told(self) -> int:
        number = self.process.stdout.readline()
        assert number, "the warm interpreter has ended: does every module of the program import?"
        return int(number)

    def close(self) -> None:
        """End it."""
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(_TIMEOUT_S)


def serve() -> str:
    """Answer each request, a line of standard input, with the child's process id and then its wait status. Returns in children only:
    with the code to run."""
    _load()
    while request := sys.stdin.buffer.readline():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks where libraries have threads, here none that work
            child = os.fork()
        if child == 0:
            return _become(**json.loads(request))
        os.write(1, b"%d\n" % child)
        os.write(1, b"%d\n" % os.waitpid(child, 0)[1])
    sys.exit()


def _load() -> None:
    """Import the program, and parse one command line since that imports more; keep the collector off what is shared with children."""
    import calc
    from calc.commands import build

    for module in pkgutil.walk_packages(calc.__path__, "calc."):
        importlib.import_module(module.name)
    with contextlib.redirect_stdout(io.StringIO()):
        build()(["schema", "model"], standalone_mode=False)
    gc.collect()
    gc.freeze()


def _become(code: str, arguments: list[str], environment: dict[str, str], cwd: str, streams: list[str]) -> str:
    """Be the process that was asked for."""
    written = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for target, (name, mode) in enumerate(zip(streams, (os.O_RDONLY, written, written), strict=True)):
        opened = os.open(name, mode, 0o600)
        os.dup2(opened, target)
        os.close(opened)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.argv = ["-c", *arguments]
    return code
