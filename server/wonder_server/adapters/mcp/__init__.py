"""Tools of MCP servers, through the package `mcp`."""
