"""What reasoning-gym offers: tasks, their categories, dataset objects, ladders, chance floors.

Scoring an answer is in `scoring`, choosing the next problem in `problems`.
"""
