"""Objects as files, and the reserve for a full disk."""
