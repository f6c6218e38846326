"""Live streams of events and text to readers."""
