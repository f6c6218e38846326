"""The BackupService."""
