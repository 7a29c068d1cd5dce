"""The page report.html: sections, charts and their shapes."""
