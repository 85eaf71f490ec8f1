"""The reward service: problems and scores over HTTP, for trainers in whatever language."""
