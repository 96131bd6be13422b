"""The code that the course gives to every learner.

``pieces`` turns notebooks into a namespace of the pieces that they define, ``builtin`` offers PyTorch's own
layers behind the same names, ``driver`` runs one piece on plain data, and ``plots`` draws the book's figures.
``sequences``, ``classifier`` and ``training`` are the classifier of chapter 8, ``data``, ``translation`` and ``engine`` what
chapter 9 will translate with, and ``weights`` reads and writes what is handed in of both.
``devices``, ``token_batches``, ``accumulation``, ``fused``, ``distributed`` and ``decoding`` make training and translating
fast, and ``scores`` says how good a translation is. ``broken_runs`` are trainings to be diagnosed, and ``costs`` works out
what one costs.
Nothing in here knows about grading.
"""

__version__ = "0.1.0"
