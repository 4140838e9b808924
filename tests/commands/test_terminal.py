"""The terminal: streams, colour, width, closed pipes, and what is imported for an answer."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.support.cli import ROOT, answered, drained, environment, run

PAIR = ("llama-3.1-8b", "h100-sxm5-80gb")
COMMANDS = (
    ("estimate", *PAIR, "--input-len", "2048", "--output-len", "256", "--batch-size", "16"),
    ("roofline", "llama-3.1-8b", "l40s", "--phase", "both", "--batch-size", "8"),
    ("capacity", "llama-3.1-70b", "h100-sxm5-80gb", "-tp", "8", "--engine", "vllm", "--max-model-len", "32k"),
    ("models", "list"),
    ("models", "show", "llama-3.1-8b"),
    ("hardware", "list"),
    ("hardware", "show", "h100-sxm5-80gb"),
    ("env",),
)
MAIN = [sys.executable, "-c", "from calc.commands import main; main()"]
ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
COLOUR = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[0-9;]*)?m")


def on_a_terminal(*arguments: str, **env: str) -> str:
    """What a command writes when standard output is a terminal."""
    reader, writer = os.openpty()
    process = subprocess.Popen(
        [*MAIN, *arguments], stdout=writer, stderr=subprocess.PIPE, env=environment(**({"TERM": "xterm-256color"} | env)), cwd=ROOT
    )
    os.close(writer)
    written = drained(reader)
    process.stderr.close()
    assert process.wait(60) == 0
    return written.decode()


# --- streams ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda a: " ".join(a[:2]))
def test_an_answer_goes_to_standard_output_alone(arguments):
    outcome = answered(*arguments)
    assert outcome.stdout
    assert "warning [" not in outcome.stdout
    assert all(line.startswith("warning [") for line in outcome.stderr.splitlines()), outcome.stderr


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda a: " ".join(a[:2]))
def test_no_escape_leaves_a_command_whose_output_is_no_terminal(arguments):
    assert "\x1b" not in answered(*arguments).stdout


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda a: " ".join(a[:2]))
def test_no_box_is_drawn_where_output_is_no_terminal(arguments):
    assert not set(answered(*arguments).stdout) & set("│─┌┐└┘├┤┬┴┼━┃╭╮╰╯═║")


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda a: " ".join(a[:2]))
def test_no_line_is_wider_than_80_columns(arguments):
    outcome = run(*arguments, env={"COLUMNS": "80"})
    assert outcome.code == 0, outcome.stderr
    wide = [line for line in outcome.stdout.splitlines() if len(line) > 80]
    assert wide == []
    assert not any(line.endswith(" ") for line in outcome.stdout.splitlines())


@pytest.mark.parametrize("command", ["estimate", "roofline", "capacity", "models", "hardware", "check", "schema", "env", "measure"])
def test_help_fits_80_columns_and_names_whole_options(command):
    outcome = run(command, "--help", env={"COLUMNS": "80"})
    assert outcome.code == 0, outcome.stderr
    assert [line for line in outcome.stdout.splitlines() if len(line) > 80] == []
    assert "…" not in outcome.stdout


def test_long_option_names_are_not_cut():
    text = run("estimate", "--help", env={"COLUMNS": "80"}).stdout
    for option in (
        "--tensor-parallel-size",
        "--decode-context-parallel-size",
        "--max-num-batched-tokens",
        "--enable-prefix-caching",
    ):
        assert option in text


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_has_a_short_flag(flag):
    assert "Usage:" in answered(flag).stdout


def test_version_names_the_version_and_the_date_of_the_library():
    from calc.version import VERSION

    text = answered("--version").stdout
    assert VERSION in text
    assert re.search(r"20\d\d-\d\d-\d\d", text)


def test_unicode_survives_a_terminal_without_it():
    """With an ASCII locale a table is still printed."""
    outcome = run(*COMMANDS[0], env={"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert outcome.code == 0, outcome.stderr


# --- colour -------------------------------------------------------------------------------------------------------------------


def test_no_color_takes_colour_away_even_where_it_is_forced():
    assert not COLOUR.search(on_a_terminal(*COMMANDS[0], NO_COLOR="1"))
    assert not COLOUR.search(run(*COMMANDS[0], env={"NO_COLOR": "1", "FORCE_COLOR": "1"}).stdout)
    assert not COLOUR.search(on_a_terminal(*COMMANDS[0], "--no-color"))


def test_force_color_styles_output_that_is_no_terminal():
    assert ESCAPE.search(run(*COMMANDS[0], env={"FORCE_COLOR": "1"}).stdout)


def test_an_empty_no_color_counts_as_unset():
    assert ESCAPE.search(run(*COMMANDS[0], env={"FORCE_COLOR": "1", "NO_COLOR": ""}).stdout)


def test_a_dumb_terminal_gets_plain_text():
    assert "\x1b" not in on_a_terminal(*COMMANDS[0], TERM="dumb")


def test_styles_do_not_change_the_words():
    plain, styled = run(*COMMANDS[0]).stdout, run(*COMMANDS[0], env={"FORCE_COLOR": "1"}).stdout
    assert ESCAPE.sub("", styled) == plain


def test_json_is_never_styled():
    assert "\x1b" not in run(*COMMANDS[0], "--json", env={"FORCE_COLOR": "1"}).stdout


# --- closed pipes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        COMMANDS[0],
        (*COMMANDS[1], "--json"),
        COMMANDS[3],
        ("hardware", "list", "--json"),
        ("schema", "model"),
        ("--help",),
        ("--version",),
    ],
    ids=lambda a: " ".join(a[:2]),
)
def test_a_closed_pipe_is_silent_and_no_failure(arguments):
    reader, writer = os.pipe()
    os.close(reader)  # nobody will ever read
    done = subprocess.run([*MAIN, *arguments], stdout=writer, stderr=subprocess.PIPE, env=environment(), cwd=ROOT, check=False)
    os.close(writer)
    assert done.stderr == b""
    assert done.returncode == 0


def test_a_reader_that_stops_after_one_line_sees_that_line():
    process = subprocess.Popen(
        [*MAIN, "schema", "model"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), cwd=ROOT
    )
    assert process.stdout.readline() == b"{\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 0


# --- imports -----------------------------------------------------------------------------------------------------------------

WATCHED = ("rich", "yaml", "numpy", "torch", "msgspec", "pandas")


def imported(*arguments: str) -> set[str]:
    """Which of the watched libraries a command has loaded when it ends."""
    program = (
        "import sys\n"
        f"sys.argv = ['roofcast', *{list(arguments)!r}]\n"
        "from calc.commands import main\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        f"print(*[m for m in {WATCHED!r} if m in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment(), cwd=ROOT, check=True)
    return set(done.stderr.decode().splitlines()[-1].split())


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("estimate", "--help"), ("-h",)], ids=lambda a: " ".join(a))
def test_help_and_version_load_neither_rich_nor_yaml_nor_numpy_nor_torch(arguments):
    assert not imported(*arguments) & {"rich", "yaml", "numpy", "torch"}


SINGLE = (("estimate", *PAIR), ("estimate", *PAIR, "--json"), ("roofline", *PAIR), ("capacity", *PAIR), *COMMANDS[3:6])


@pytest.mark.parametrize("arguments", SINGLE, ids=lambda a: " ".join(a))
def test_a_single_answer_loads_neither_numpy_nor_torch(arguments):
    assert not imported(*arguments) & {"numpy", "torch"}


def test_a_command_is_built_alone_where_its_name_comes_first():
    from typer.main import get_command

    from calc.commands import build

    whole = get_command(build()).commands
    assert get_command(build("nope")).commands.keys() == whole.keys()
    for name in whole:
        assert list(get_command(build(name)).commands) == [name]


def test_json_loads_no_rich():
    assert "rich" not in imported("estimate", *PAIR, "--json")


@pytest.mark.parametrize(
    "arguments",
    [
        *COMMANDS[:7],
        ("request", *PAIR),
        ("sweep", *PAIR, "-b", "1..8"),
        ("plan", PAIR[0], "--hardware", PAIR[1], "--price", f"{PAIR[1]}=3"),
        ("compare", " ".join(PAIR), "llama-3.1-8b l40s"),
        ("check", str(ROOT / "hardware_profiles" / "nvidia" / "l40s.yaml")),
        ("measure", "--list"),
    ],
    ids=lambda a: " ".join(a[:2]),
)
def test_a_new_interpreter_answers_as_the_warm_one_does(arguments):
    """Elsewhere all modules are loaded before a command runs, and words are hashed alike: what hangs on either shows here."""
    assert run(*arguments, fresh=True) == answered(*arguments)
