"""Services: the stateless use cases."""
