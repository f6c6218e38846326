"""The record of actors on any store: commits to stored rows and back."""
