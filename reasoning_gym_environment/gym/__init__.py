"""Problems, scores and streams for any trainer, without a server or tokenizer."""
