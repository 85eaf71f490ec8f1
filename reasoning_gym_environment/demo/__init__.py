"""The demo: a simulated policy behind real HTTP, between the environment and a stand-in trainer.

The environment never imports this package.
"""
