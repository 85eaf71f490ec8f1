"""A simulated policy behind real HTTP, so that everything runs without a GPU.

Never imported by the environment.
"""
