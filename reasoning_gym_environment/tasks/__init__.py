"""What reasoning-gym offers: tasks, their categories, dataset objects, ladders, floors.

Scoring an answer is in `scoring`, choosing the next problem in `problems`.
"""
