"""Views of stores for one access scope, over any adapter of the store's port.

The view of everything passes each call on. A view of less adds its projects to each query, and reads the
owner of a record before anything else.
"""
