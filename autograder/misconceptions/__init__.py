"""Known wrong implementations with their hints, one module per chapter."""
