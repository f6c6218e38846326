"""Catalog: libraries, definitions, agents, projects and pins."""
