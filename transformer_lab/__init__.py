"""The code that the course gives to every learner.

``pieces`` turns notebooks into a namespace of the pieces that they define, ``builtin`` offers PyTorch's own
layers behind the same names, ``driver`` runs one piece on plain data, and ``plots`` draws the book's figures.
Nothing in here knows about grading.
"""

__version__ = "0.1.0"
