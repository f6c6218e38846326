"""Workflows as drawings: `text.draw` for a terminal, `mermaid.draw` for a page. Pure: no server, no file."""
