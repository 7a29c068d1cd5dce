"""Sections, charts and shapes of the page report.html."""
