"""Pure code: no await, clock, randomness, I/O or protobuf.

Modules here take values and return values. They import the standard library, the libraries for JSON Schema,
regular expressions and frozen values, and other modules of this package.
"""
