"""Which training problem comes next: seeds, sampler, levels, curriculum, signal, stream.

Making the problem is the workers' part; evaluation items are planned in `evaluation`.
"""
