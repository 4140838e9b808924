"""``reference/cli.md`` from the application itself: every command, argument and option."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import typer.main

from calc.commands import build, options

_INTRO = """\
# Command line

    roofcast COMMAND [ARGUMENTS] [OPTIONS]

This page is generated from the program. `roofcast COMMAND --help` prints the same.

**Numbers.** Token counts, batch sizes and lengths take `k` (1,024) and `m` (1,048,576): `32k` is 32,768 tokens. Sizes take
`KB MB GB TB` (powers of 1,000) and `KiB MiB GiB TiB` (powers of 1,024). Shares are `0.9` or `90%`. Every answer echoes the values it used.

**MODEL** is the id of a profile, an alias (the Hub id, the id without `meta-`, without `-instruct`, `-chat`, `-it` or `-hf` where only one
profile is meant), or a path. **HARDWARE** is the id of a profile, an alias (what `torch.cuda.get_device_name` reports, what a cloud calls
it), or a path. Letter case and runs of spaces do not matter. A name is never matched by a part of it.

**Where profiles are looked for**, first match wins: an explicit path; `--profiles-dir`; `$ROOFCAST_PROFILES`; `./model_profiles` and
`./hardware_profiles`; the user folder (`$ROOFCAST_HOME`, else `$XDG_CONFIG_HOME/roofcast`, else `~/.config/roofcast`); the library that
ships with roofcast.

**Streams.** Answers go to standard output (or to the file of `--output`), notices and errors to standard error. Output that is not a
terminal has no colour; `NO_COLOR`, `FORCE_COLOR`, `TERM=dumb` and `COLUMNS` are honoured. Signs that the
terminal's encoding lacks are replaced by plain ones (`us`, `x`); JSON then escapes them.

**Files.** Input is a regular file: a profile or scenario of at most 4 MiB, a `config.json` of 16 MiB, a run file of 256 MiB, a trace of
1 GiB and 5,000,000 rows. A start-up log may also come from a pipe or standard input (`-`); its first 16 MiB are read. A file of
`--output` is replaced whole or not at all and keeps its permissions; of a link the target is written; a device or a pipe is written as
it stands; a read-only file is refused.

## Exit codes

| code | meaning |
|---:|---|
| 0 | answered |
| 1 | a gate or a check failed; also a deployment that does not fit (printed with null times), or a run file that could not be written |
| 2 | wrong usage or an unknown name |
| 3 | a profile or input file is invalid |
| 4 | measurement is not possible here |
| 130 | interrupted |

With 2, 3 and 4 standard output stays empty; standard error has an `error:` line and a `hint:` line.
`ROOFCAST_DEBUG=1` shows the traceback instead.
"""

#: Options that several commands share, described once: title, anchor, parameters.
_GROUPS = (
    ("Deployment options", "deployment-options", options.DEPLOYMENT),
    ("Work options", "work-options", options.WORK),
    ("Output options", "output-options", options.OUTPUT),
)


def page() -> str:
    """The whole page."""
    root = typer.main.get_command(build())
    parts = [_INTRO, "## Commands\n"]
    leaves = list(_leaves(root, "roofcast"))
    parts.append("| command | answers |\n|---|---|\n" + "".join(_index_row(name, command) for name, command in leaves))
    described = {title: _described(group, leaves) for title, _, group in _GROUPS}
    parts += [_command(name, command, described) for name, command in leaves]
    parts += [f"## {title}\n\n" + _option_table(list(described[title].values())) for title, _, _ in _GROUPS]
    return "\n".join(parts)


def _described(group: tuple[Any, ...], leaves: list[tuple[str, Any]]) -> dict[str, Any]:
    """The parameters of a group by name, in the form that most commands give them."""
    found = {}
    for wanted in group:
        same = [p for _, command in leaves for p in command.params if p.name == wanted.name]
        forms = Counter(map(_form, same))
        if same:
            found[wanted.name] = max(same, key=lambda p: forms[_form(p)])
    return found


def _form(parameter: Any) -> tuple[tuple[str, ...], str]:
    return tuple(parameter.opts), _text(getattr(parameter, "help", ""))


def _leaves(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    for word, inner in command.commands.items():
        if hasattr(inner, "commands"):
            yield from _leaves(inner, f"{name} {word}")
        else:
            yield f"{name} {word}", inner


def _index_row(name: str, command: Any) -> str:
    return f"| [`{name}`](#{name.replace(' ', '-')}) | {_text(command.help)} |\n"


def _text(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def _command(name: str, command: Any, described: dict[str, dict[str, Any]]) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    left = {p.name: p for p in command.params if p.param_type_name == "option" and p.name != "help"}
    usage = " ".join([name, *(_metavar(a) for a in arguments), "[OPTIONS]"])
    lines = [f"## {name}", "", _text(command.help), "", f"    {usage}", ""]
    if arguments:
        lines += ["| argument | meaning |", "|---|---|"]
        lines += [f"| `{_metavar(a)}` | {_text(a.help)} |" for a in arguments]
        lines.append("")
    links = []
    for title, anchor, _ in _GROUPS:
        shared = described[title]
        if all(n in left and _form(left[n]) == _form(p) for n, p in shared.items()):
            links.append(f"[{title.lower()}](#{anchor})")
            for n in shared:
                del left[n]
    if left:
        lines += [_option_table(list(left.values()))]
    if links:
        lines += ["Takes also: " + ", ".join(links) + ".", ""]
    return "\n".join(lines)


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _option_table(parameters: list[Any]) -> str:
    lines = ["| option | meaning |", "|---|---|"]
    for p in parameters:
        flags = ", ".join(f"`{flag}`" for flag in [*p.opts, *p.secondary_opts])
        value = "" if p.is_flag else f" `{_metavar(p)}`"
        lines.append(f"| {flags}{value} | {_text(p.help)} |")
    return "\n".join(lines) + "\n"
