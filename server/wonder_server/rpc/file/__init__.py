"""The FileService."""
