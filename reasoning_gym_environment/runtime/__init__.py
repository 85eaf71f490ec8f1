"""Event loop, worker processes and files; knows nothing of Atropos."""
