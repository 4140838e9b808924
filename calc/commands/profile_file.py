"""Files of profiles that commands write: named after the profile, and never over one that is there unless told to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from calc.commands import options as opt

OUTPUT = opt.text("output", "--output", "-o", help="Write the profile here. Default: standard output.", metavar="FILE")
FORCE = opt.flag("force", "--force", help="Overwrite an existing file.")
_IDENTIFIER = re.compile(r"[a-z0-9][a-z0-9._-]{0,119}")


def path(options: dict[str, Any]) -> Path | None:
    """Where ``--output`` says, None for standard output. Raises UsageError where that is there already and ``--force`` is not said."""
    from calc.errors import UsageError

    target = options.get("output")
    if target in (None, "-"):
        return None
    if Path(target).expanduser().exists() and not options.get("force"):
        raise UsageError(f"{target} exists", "choose another file, or --force")
    return Path(target).expanduser()


def named_path(options: dict[str, Any], identifier: str | None = None) -> Path | None:
    """As ``path``, of a file that names its profile: ``identifier`` where it is known."""
    from calc.errors import UsageError

    target = options.get("output")
    if target not in (None, "-"):
        stem = Path(target).stem
        fits = stem == identifier if identifier else _IDENTIFIER.fullmatch(stem)
        if Path(target).suffix.lower() not in (".yaml", ".yml") or not fits:
            example = f"-o {identifier or 'my-device'}.yaml"
            raise UsageError(f"{target} cannot be a profile's file", f"a profile's file is named after its id, like {example}")
    return path(options)


def new(identifier: str, text: str, options: dict[str, Any]) -> None:
    """Write the template of a profile. Raises UsageError for what cannot be an id or a file's name."""
    from calc.commands import output
    from calc.errors import UsageError

    if not _IDENTIFIER.fullmatch(identifier):
        near = re.sub(r"[^a-z0-9._-]+", "-", identifier.lower()).strip("-._")[:120] or "my-profile"
        raise UsageError(f"{identifier!r} cannot be an id", f"lower case letters, digits and hyphens, like {near}")
    target = named_path(options, identifier)
    output.write(text, None if target is None else str(target))
