"""The gRPC services of the contract: one package per service, and the server that they share."""
