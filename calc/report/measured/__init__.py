"""Measured against predicted: tables, charts, one page of HTML, one picture."""
