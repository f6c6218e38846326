"""Content and size of model requests and of hook inputs."""
