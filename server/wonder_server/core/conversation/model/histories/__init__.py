"""Histories of new conversations: their origin, and the inputs and decisions that write them."""
