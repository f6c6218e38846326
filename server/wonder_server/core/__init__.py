"""The pure room: no await, no clock, no randomness, no I/O, no protobuf.

What lives here takes values and returns values. It may import the standard library, the CEL
expression library and the JSON Schema library, and nothing else of this project but itself.
"""
