"""The hidden checks, one module per chapter."""
