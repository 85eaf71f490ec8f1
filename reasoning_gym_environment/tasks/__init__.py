"""What reasoning-gym offers: tasks, their categories, dataset objects, ladders, chance floors.

Scoring an answer is not here, nor is the choice of the next problem.
"""
