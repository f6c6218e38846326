"""The store of the catalog: catalog.db with libraries, definitions, agents and projects."""
