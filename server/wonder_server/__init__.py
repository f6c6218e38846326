"""Wonder: a self-hosted platform server for AI agents and conversations, reached over gRPC."""

__version__ = "0.1.0"
