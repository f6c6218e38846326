"""Fakes of ports in memory, for tests and for servers that store nothing."""
