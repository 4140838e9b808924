"""Pictures: one declarative description each, drawn in a terminal or as PNG, SVG and self-contained HTML."""
