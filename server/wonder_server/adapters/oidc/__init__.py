"""Issuers of tokens by OpenID Connect: their keys, and the verification of JSON Web Tokens."""
