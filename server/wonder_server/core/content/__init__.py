"""Contents of messages beyond text: parts, files and media types; the normal form of texts."""
