"""The gRPC listener and the pipeline that every call passes through."""
