"""Commands that measure what a page of the book shows and that take too long for the page itself.

Each is run as ``python -m transformer_lab.measurements.<name>`` and writes one file of ``results/``.
"""
