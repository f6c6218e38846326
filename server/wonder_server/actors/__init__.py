"""Actors: the loop of conversations and workflow runs, and every entry point that reaches them."""
