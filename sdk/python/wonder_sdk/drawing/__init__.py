"""Drawings of workflows: `text.draw` for a terminal, `mermaid.draw` for a page. Neither does I/O."""
