"""Problems, scores, streams and contained functions for any trainer, in plain Python.

Needs no server, tokenizer or event loop.
"""
