"""The commands of ``python -m transformer_lab``, one module each: what it is for, its arguments, and what it does."""
