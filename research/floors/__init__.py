"""What can be solved without reasoning: by one constant answer, or by copying from the question.

Run it from the top of the repository: `python -m research.floors FILE`.
"""
