"""Problems, scores and streams for any trainer, as plain Python. Needs no server or tokenizer."""
