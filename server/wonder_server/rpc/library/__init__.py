"""The LibraryService."""
