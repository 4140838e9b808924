"""The command line: one file per command. Modules here import only the standard library and typer at the top."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import TextIO

import typer

#: Command → module; sub-applications (``models``, ``hardware``) are registered by their own modules.
_COMMANDS = (
    "estimate",
    "roofline",
    "capacity",
    "reconcile",
    "request",
    "sweep",
    "plan",
    "compare",
    "run",
    "models",
    "hardware",
    "measure",
    "fit",
    "report",
    "check",
    "schema",
    "env",
)


def _version(value: bool) -> None:
    if value:
        from calc.version import LIBRARY_DATE, VERSION

        print(f"roofcast {VERSION} (library of {LIBRARY_DATE})")
        raise typer.Exit


def build() -> typer.Typer:
    """The application with all its commands."""
    app = typer.Typer(
        name="roofcast",
        help="What an LLM deployment does before you rent the GPU: does it fit, how fast, what limits it, how sure is that.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )

    @app.callback()
    def root(
        version: bool = typer.Option(
            False, "--version", help="Print the version and the date of the library.", callback=_version, is_eager=True
        ),
    ) -> None:
        pass

    for name in _COMMANDS:
        import_module(f"calc.commands.{name}").register(app)
    return app


def main() -> None:
    """Entry point: runs a command and turns every failure into one ``error:`` line, one ``hint:`` line and an exit code."""
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - lives as long as the process
    try:
        code = build()(standalone_mode=False, prog_name="roofcast")
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except SystemExit:
        # The option parser turns a closed pipe into exit 1 and marks the stream.
        if type(sys.stdout).__name__ == "PacifyFlushWrapper":
            sys.exit(0)
        raise
    except BrokenPipeError:
        # The reader went away: not an error of ours. Point the descriptor elsewhere so that the interpreter's flush is quiet.
        _silence(sys.stdout)
        sys.exit(0)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        sys.exit(_failed(error))


def _silence(stream: TextIO) -> None:
    """Let the interpreter's last flush go nowhere."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _failed(error: Exception) -> int:
    from calc.errors import RoofcastError

    if os.environ.get("ROOFCAST_DEBUG") == "1":
        raise error
    if isinstance(error, RoofcastError):
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return error.exit_code
    if isinstance(error, OSError):
        print(f"error: cannot write the answer: {error.strerror or error}", file=sys.stderr)
        _silence(sys.stdout)
        return 1
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error, file=sys.stderr)
        return 2
    format_message = getattr(error, "format_message", None)
    if format_message is not None:  # a usage error of the option parser
        context = getattr(error, "ctx", None)
        command = getattr(context, "command_path", "roofcast")
        print(f"error: {' '.join(str(format_message()).split())}", file=sys.stderr)
        print(f"hint: `{command} --help` lists the options", file=sys.stderr)
        return 2
    if type(error).__name__ == "Abort":
        print("interrupted", file=sys.stderr)
        return 130
    if isinstance(error, MemoryError):
        print("error: out of memory", file=sys.stderr)
        return 1
    print(f"error: {type(error).__name__}: {error}", file=sys.stderr)
    print("hint: this is a fault of roofcast; ROOFCAST_DEBUG=1 shows where", file=sys.stderr)
    return 1
