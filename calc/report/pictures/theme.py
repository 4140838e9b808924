"""Colours, lines and type of pictures, for light and dark grounds. Hues: Okabe and Ito 2008, told apart by all kinds of sight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

WIDTH, FONT_SIZE = 860, 12
FONT = "Helvetica Neue, Helvetica, Arial, Liberation Sans, sans-serif"


@dataclass(frozen=True)
class Theme:
    """Ground, text, quiet lines and the hues of series in order."""

    ground: str
    text: str
    quiet: str
    grid: str
    hues: tuple[str, ...]


LIGHT = Theme("#ffffff", "#1b1f24", "#57606a", "#e4e7eb", ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9"))
DARK = Theme("#15181c", "#e6e8eb", "#9aa4af", "#2c3238", ("#56b4e9", "#f0883e", "#2dd4a7", "#e59ac4", "#f0e442", "#9cc9f0"))
THEMES = {"light": LIGHT, "dark": DARK}


def config(theme: Theme) -> dict[str, Any]:
    """Vega-Lite configuration of a theme."""
    text = {"font": FONT, "fontSize": FONT_SIZE, "color": theme.text}
    labels = {"labelFont": FONT, "labelFontSize": FONT_SIZE, "titleFont": FONT, "titleFontSize": FONT_SIZE}
    return {
        "background": theme.ground,
        "padding": 16,
        "font": FONT,
        "view": {"stroke": theme.grid},
        "axis": labels
        | {
            "labelColor": theme.text, "titleColor": theme.text, "gridColor": theme.grid, "domainColor": theme.quiet,
            "tickColor": theme.quiet, "titleFontWeight": "normal", "titlePadding": 8, "labelLimit": 260,
        },
        "legend": labels | {"labelColor": theme.text, "titleColor": theme.text, "labelLimit": 420, "symbolStrokeWidth": 2},
        "header": labels | {"labelColor": theme.text, "titleColor": theme.text},
        "title": {
            "font": FONT, "fontSize": 15, "color": theme.text, "subtitleColor": theme.quiet, "subtitleFont": FONT,
            "subtitleFontSize": FONT_SIZE, "anchor": "start", "offset": 12, "subtitlePadding": 6, "fontWeight": 600,
        },
        "text": text,
        "range": {"category": list(theme.hues)},
        "concat": {"spacing": 36},
    }  # fmt: skip
