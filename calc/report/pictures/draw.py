"""Draws a picture into a file: PNG, SVG or one HTML page that needs nothing else. Needs vl-convert (extra ``plot``)."""

from __future__ import annotations

import html
import json
from types import ModuleType

from calc.errors import UsageError
from calc.report.pictures.picture import Picture
from calc.report.pictures.theme import THEMES
from calc.report.pictures.vega import specification

INSTALL = "pip install 'roofcast[plot]'"
#: Pixels of a PNG per point: sharp on dense screens.
SCALE = 2.0

# The page follows the reader's preference for light or dark, and carries the drawing library itself.
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ margin: 0; background: {light}; }}
@media (prefers-color-scheme: dark) {{ body {{ background: {dark}; }} }}
#picture {{ width: 100%; overflow-x: auto; }}
</style>
</head>
<body>
<div id="picture"></div>
<script>
{library}
</script>
<script>
const pictures = {pictures};
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const draw = () => window.vegaEmbed("#picture", pictures[dark.matches ? "dark" : "light"], {{ actions: false, renderer: "svg" }});
dark.addEventListener("change", draw);
draw();
</script>
</body>
</html>
"""


def converter() -> ModuleType:
    """vl-convert, or a UsageError that says how to install it."""
    try:
        import vl_convert
    except ImportError:
        raise UsageError("pictures need vl-convert-python", INSTALL) from None
    module: ModuleType = vl_convert
    return module


def draw(picture: Picture, kind: str, theme: str = "light") -> bytes:
    """The picture as ``png``, ``svg`` or ``html``. HTML follows the reader's preference whatever the theme."""
    convert = converter()
    if kind == "html":
        return _page(picture, convert).encode("utf-8")
    spec = specification(picture, THEMES[theme])
    if kind == "png":
        return bytes(convert.vegalite_to_png(spec, scale=SCALE))
    return str(convert.vegalite_to_svg(spec)).encode("utf-8")


def _page(picture: Picture, convert: ModuleType) -> str:
    drawn = {name: specification(picture, theme) for name, theme in THEMES.items()}
    title = picture.panels[0].title if picture.panels else "roofcast"
    return _PAGE.format(
        title=html.escape(title),
        light=THEMES["light"].ground,
        dark=THEMES["dark"].ground,
        library=convert.javascript_bundle().replace("</script", "<\\/script"),
        pictures=_json(drawn),
    )


def _json(value: object) -> str:
    """JSON that may stand inside a script element."""
    return json.dumps(value, allow_nan=False).replace("</", "<\\/")
