"""``reference/json-output.md`` from the schema of answers: every key with its definition."""

from __future__ import annotations

from typing import Any

from calc.report.result_schema import result_schema

_INTRO = """\
# JSON output

Every command that answers takes `--json` (or `--format json`, or `--output FILE.json`). This page is generated from the
[JSON Schema of answers](schema/result.schema.json), which `roofcast schema result` prints.

An answer is an envelope around `results`:

```json
{
  "schema": "roofcast.estimate/1",
  "version": "...",
  "inputs": {"model": "...", "hardware": "...", "batch_size": 1},
  "profiles": [{"kind": "model", "name": "...", "sha256": "..."}],
  "results": {},
  "warnings": [{"code": "...", "message": "..."}]
}
```

| key | meaning |
|---|---|
| `schema` | `roofcast.<command>/<version>`; the version grows when a key changes its meaning or goes away |
| `version` | version of roofcast |
| `inputs` | every input as it was resolved, defaults included |
| `profiles` | the profiles that were read, with the digest of their content |
| `results` | the answer; below, by command |
| `warnings` | doubts about the answer, with a stable `code` |

Key names carry their unit: `_s` seconds, `_bytes` bytes, `flops` floating-point operations (one multiply-add is 2), `_tokens_per_s`.
Values are not rounded. There is no NaN: what is not answered is `null`, and a warning says why.
"""

#: What the objects say of themselves depends on where they stand; these are what they are.
_ABOUT = {
    "Range": "A time in seconds: a floor that nothing beats, and a range with what it rests on. All null where no speed is answered.",
    "Rate": "A rate per second. `ceiling` is what nothing exceeds, `low` the slow end. All null where no speed is answered.",
}

#: Objects that appear in several places: title by keys that only they have.
_NAMED = (
    ("Range", frozenset({"floor", "low", "expected", "high", "evidence"})),
    ("Rate", frozenset({"ceiling", "low", "expected", "high", "evidence"})),
    ("Operator", frozenset({"class", "shape", "count", "share"})),
    ("Step", frozenset({"arithmetic_intensity_weights_only", "ridge_point", "time_s"})),
    ("Memory", frozenset({"fits", "used_bytes_per_gpu", "terms"})),
    ("Capacity", frozenset({"kv_tokens", "max_concurrency", "block_tokens"})),
)


def page() -> str:
    """The whole page."""
    schema = result_schema()
    named: dict[str, tuple[dict[str, Any], str]] = {}
    sections = []
    for command, body in sorted(schema["$defs"].items()):
        heading = f"## Results of {command}\n\n"
        about = _clean(body.get("description", ""))
        sections.append(heading + (about + "\n\n" if about else "") + _table(_rows(body, "", named)))
    shared = []
    done: set[str] = set()
    while set(named) - done:
        for title in sorted(set(named) - done):
            done.add(title)
            body, about = named[title]
            about = _ABOUT.get(title, about)
            shared.append(f"## {title}\n\n" + (about + "\n\n" if about else "") + _table(_rows(body, "", named, inside=title)))
    return "\n".join([_INTRO, *sections, *sorted(shared)])


def _clean(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _table(rows: list[tuple[str, str, str]]) -> str:
    lines = ["| key | type | meaning |", "|---|---|---|"]
    return "\n".join(lines + [f"| `{key}` | {kind} | {about} |" for key, kind, about in rows]) + "\n"


def _body(schema: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The schema without an enclosing ``null`` alternative, and whether null is allowed."""
    if "anyOf" in schema:
        real = [s for s in schema["anyOf"] if s.get("type") != "null"]
        if len(real) == 1:
            return {"description": schema.get("description", ""), **real[0]}, True
    return schema, False


def _title(body: dict[str, Any]) -> str | None:
    keys = set(body.get("properties", {}))
    return next((title for title, needed in _NAMED if needed <= keys), None)


def _rows(
    body: dict[str, Any], prefix: str, named: dict[str, tuple[dict[str, Any], str]], inside: str | None = None
) -> list[tuple[str, str, str]]:
    rows: list[tuple[str, str, str]] = []
    if (title := _title(body)) and not prefix and inside is None:
        named.setdefault(title, (body, _clean(body.get("description", ""))))
        return [("results", f"[{title}](#{title.lower()})", "")]
    for key, inner in body.get("properties", {}).items():
        real, optional = _body(inner)
        rows += _entry(prefix + key, real, optional, _clean(inner.get("description") or real.get("description", "")), named)
    return rows


def _entry(
    path: str, schema: dict[str, Any], optional: bool, about: str, named: dict[str, tuple[dict[str, Any], str]]
) -> list[tuple[str, str, str]]:
    if schema.get("type") == "array":
        items, _ = _body(schema.get("items", {}))
        found = _entry(path + "[]", items, optional, about, named)
        return found
    title = _title(schema)
    if title:
        known = named.setdefault(title, (schema, _clean(schema.get("description", ""))))
        if len(schema["properties"]) > len(known[0]["properties"]):  # the fullest form is described
            named[title] = (schema, known[1])
        return [(path, f"[{title}](#{title.lower()})" + (" or null" if optional else ""), about)]
    if schema.get("properties"):
        head = [(path, "object" + (" or null" if optional else ""), about)] if about else []
        return head + _rows(schema, path + ".", named)
    return [(path, _kind(schema) + (" or null" if optional else ""), about)]


def _kind(schema: dict[str, Any]) -> str:
    kind = schema.get("type", "any")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)
