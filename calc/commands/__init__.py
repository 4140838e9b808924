"""The command line: one file per command. Modules here import only the standard library and typer at the top."""

from __future__ import annotations

import codecs
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import TextIO

import typer

#: Exit code of a command that Ctrl-C ended.
INTERRUPTED = 130
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


def build(only: str | None = None) -> typer.Typer:
    """The application with all its commands, or with one alone where ``only`` is a command's name: so an answer starts sooner."""
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

    for name in (only,) if only in _COMMANDS else _COMMANDS:
        import_module(f"calc.commands.{name}").register(app)
    return app


def main() -> None:
    """Entry point: runs a command and turns every failure into one ``error:`` line, one ``hint:`` line and an exit code."""
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - lives as long as the process
    _any_encoding()
    try:
        code = build(*sys.argv[1:2])(standalone_mode=False, prog_name="roofcast")
        sys.stdout.flush()
        if code == INTERRUPTED:  # the option parser's answer to Ctrl-C
            raise KeyboardInterrupt
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
        print("interrupted: no file was written or changed", file=sys.stderr)
        _silence(sys.stdout)
        sys.exit(INTERRUPTED)
    except Exception as error:
        sys.exit(_failed(error))


#: What stands for signs that a terminal's encoding lacks.
_SUBSTITUTES = str.maketrans(
    {"µ": "u", "μ": "u", "×": "x", "·": ".", "→": "->", "≤": "<=", "≥": ">=", "–": "-", "—": "-", "…": "..."}
)


def _any_encoding() -> None:
    """Print in any encoding: signs that it lacks become plain ones, or a question mark; names of files that are no text as they are."""

    def plainly(fault: UnicodeError) -> tuple[str | bytes, int]:
        if not isinstance(fault, UnicodeEncodeError):
            raise fault
        sign = fault.object[fault.start]
        if "\udc80" <= sign <= "\udcff":  # a byte of a file's name
            return bytes([ord(sign) - 0xDC00]), fault.start + 1
        found = sign.translate(_SUBSTITUTES)
        if not found.isascii():  # dots and bars of drawings
            found = (
                " " if sign == "\u2800" else "*" if "\u2800" < sign <= "\u28ff" else "#" if "\u2580" <= sign <= "\u259f" else "?"
            )
        return found, fault.start + 1

    codecs.register_error("roofcast", plainly)
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError, OSError):  # a stream of another kind, or none
            stream.reconfigure(errors="roofcast")  # type: ignore[union-attr]


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
        if error.filename is not None:  # a stream that is open already has no name
            print(f"error: {error.filename}: {error.strerror or error}", file=sys.stderr)
            print("hint: is it there, and may it be read and written?", file=sys.stderr)
        else:
            print(f"error: cannot write the answer: {error.strerror or error}", file=sys.stderr)
            print("hint: free some space, or write elsewhere: -o FILE", file=sys.stderr)
        _silence(sys.stdout)
        return 2
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error, file=sys.stderr)
        return 2
    format_message = getattr(error, "format_message", None)
    if format_message is not None:  # a usage error of the option parser
        context = getattr(error, "ctx", None)
        command = getattr(context, "command_path", "roofcast")
        said = " ".join(str(format_message()).split())
        name = getattr(error, "option_name", None)
        if isinstance(name, str) and len(name) == 2:  # the parser reads -sm as -s -m
            whole = next((w for w in sys.argv[1:] if w.startswith(name)), name)
            said = said.replace(f"option: {name}", f"option: {whole}")
        print(f"error: {said}", file=sys.stderr)
        print(f"hint: `{command} --help` lists the options", file=sys.stderr)
        return 2
    if isinstance(error, MemoryError):
        print("error: out of memory", file=sys.stderr)
        print("hint: ask for fewer points, or for a smaller file, at once", file=sys.stderr)
        return 1
    print(f"error: {type(error).__name__}: {error}", file=sys.stderr)
    print("hint: this is a fault of roofcast; ROOFCAST_DEBUG=1 shows where", file=sys.stderr)
    return 1
