"""Problems and scores for any trainer: Python without a server, a tokenizer or an event loop."""
