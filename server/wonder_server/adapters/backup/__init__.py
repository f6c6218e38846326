"""Backups of data folders: a folder that only grows until its manifest is replaced."""
