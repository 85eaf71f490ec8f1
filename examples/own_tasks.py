"""Three tasks of one's own: a function for each, a verifier for the two that need one, and a solver
for the one whose labels `prove` can't check without.

`python examples/own_tasks.py` prints a problem of each.
"""

import re
from datetime import date, datetime, timedelta

from reasoning_gym_environment import ReasoningGym, task

FIRMS = [
    "Alder",
    "Birch",
    "Cedar",
    "Elm",
    "Fir",
    "Hazel",
    "Larch",
    "Maple",
    "Oak",
    "Pine",
]
PEOPLE = ["Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hana"]


def signed_sum(question, data):
    """Return the sum of all numbers, those to subtract negated: a second way to the answer."""
    found = re.findall(r"(Start with|Add|Subtract) (\d+)", question)
    return str(sum(int(f"-{n}" if word == "Subtract" else n) for word, n in found))


@task(levels=8, solve=signed_sum)
def running_total(random, level):
    """Ask for the result of several additions and subtractions. Only the number is right."""
    total = random.randrange(100, 1000)
    text = f"Start with {total}."
    for _ in range(level + 1):
        number = random.choice([-1, 1]) * random.randrange(2, 1000)
        text += f" Add {number}." if number > 0 else f" Subtract {-number}."
        total += number
    return f"{text} What is the result?", str(total), None


def same_date(answer, due):
    """Return 1 for the date in any form with its month in letters, or of ISO 8601."""
    text = re.sub(r"(?<=\d)(st|nd|rd|th)\b|\bof\b|[,.]", " ", answer)
    for form in ("%d %B %Y", "%d %b %Y", "%B %d %Y", "%b %d %Y", "%Y-%m-%d"):
        try:
            return float(
                datetime.strptime(" ".join(text.split()), form).date().isoformat()
                == due
            )
        except ValueError:  # another form; 3/4/2027 is none, since it is two dates
            continue
    return 0.0


@task(levels=6, verifier=same_date)
def due_date(random, level):
    """Ask when one of the invoices in a text is due, some of them after a delay."""
    text, due = "", {}
    for firm in random.sample(FIRMS, level + 2):
        sent = date(2020, 1, 1) + timedelta(days=random.randrange(5000))
        days = random.randrange(5, 91)
        text += f"{firm}'s invoice of {sent:%B} {sent.day}, {sent.year} is due in {days} days. "
        due[firm] = sent + timedelta(days=days)
    for firm in random.sample(list(due), level // 2):
        weeks = random.randrange(2, 9)
        text += f"{firm} granted {weeks} more weeks. "
        due[firm] += timedelta(weeks=weeks)
    firm = random.choice(list(due))
    answer = f"{due[firm].day} {due[firm]:%B} {due[firm].year}"
    question = f"{text}On which date is {firm}'s invoice due? Answer like 31 May 2024."
    return question, answer, due[firm].isoformat()


def clock(minutes):
    return f"{8 + minutes // 60:02}:{minutes % 60:02}"


def is_free(answer, data):
    """Return 1 for each full five minutes from which all are free until the meeting ends."""
    found = re.fullmatch(r"(\d\d?):([0-5]\d)", answer.strip())
    if found is None:
        return 0.0
    begin = 60 * int(found[1]) + int(found[2]) - 8 * 60
    end = begin + data["minutes"]
    is_slot = begin >= 0 and end <= 600 and begin % 5 == 0
    return float(
        is_slot and all(end <= start or begin >= stop for start, stop in data["busy"])
    )


@task(levels=6, verifier=is_free)
def free_slot(random, level):
    """Ask for a time at which several people can meet. More than one may be right."""
    minutes = 5 * random.randrange(6, 13)
    begin = 5 * random.randrange((600 - minutes) // 5 + 1)
    busy = []
    for start, end in ((0, begin), (begin + minutes + 5 * random.randrange(3), 600)):
        while start < end:
            stop = start + 5 * random.randrange(6, 24 - 3 * level)
            stop = end if end - stop < minutes else stop
            busy.append([start, stop])
            start = stop + 5 * random.randrange(minutes // 5)  # too short to meet
    random.shuffle(busy)
    people = random.sample(PEOPLE, level + 2)
    text = "".join(
        f"{random.choice(people)} is busy from {clock(start)} to {clock(stop)}. "
        for start, stop in busy
    )
    question = (
        f"{text}Work is from 08:00 to 18:00, and meetings start at full five minutes. When can "
        f"{', '.join(people)} meet for {minutes} minutes? Answer like 09:05."
    )
    return question, clock(begin), {"busy": busy, "minutes": minutes}


if __name__ == "__main__":  # workers import this file to have its tasks
    with ReasoningGym(task_modules=[__file__]) as gym:
        for summary in gym.tasks():
            if summary.category == "own_tasks":
                [problem] = gym.problems(summary.name, level=summary.levels - 1)
                score = gym.score(problem, f"<answer>{problem.oracle}</answer>")
                print(
                    problem.question,
                    problem.oracle,
                    score.status.value,
                    sep="\n",
                    end="\n\n",
                )
