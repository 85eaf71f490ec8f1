"""Fifteen mistakes of a newcomer, for `test_newcomers_mistakes.py`.

A docstring says who finds the mistake: `mypy --strict`, the call, or both, and what the call says.
`problem` is of a stream that learns without a group size, which awaits it.
"""

from reasoning_gym_environment import Problem, ProblemStream, ReasoningGym


def misspelled_option_of_a_gym(gym: ReasoningGym, problem: Problem) -> None:
    """Both: did you mean processes."""
    ReasoningGym(proceses=2)


def option_of_the_wrong_type(gym: ReasoningGym, problem: Problem) -> None:
    """Both: processes must be an integer"""
    ReasoningGym(processes="2")


def option_out_of_range(gym: ReasoningGym, problem: Problem) -> None:
    """Call: verify_timeout must be a number > 0, got 0"""
    ReasoningGym(verify_timeout=0)


def misspelled_option_of_a_stream(gym: ReasoningGym, problem: Problem) -> None:
    """Both: did you mean complexity_mode"""
    gym.stream(["gcd"], complexty_mode="curriculum")


def unknown_mode_of_a_stream(gym: ReasoningGym, problem: Problem) -> None:
    """Both: complexity_mode must be one of random, curriculum, fixed, got 'curicculum'"""
    gym.stream(["gcd"], complexity_mode="curicculum")


def group_size_as_text(gym: ReasoningGym, problem: Problem) -> None:
    """Both: group_size must be an integer"""
    gym.stream(["gcd"], complexity_mode="curriculum", group_size="8")


def a_task_in_place_of_tasks(gym: ReasoningGym, problem: Problem) -> None:
    """Call: tasks must be a list, got 'gcd'"""
    gym.stream("gcd")


def level_as_text(gym: ReasoningGym, problem: Problem) -> None:
    """Both: level must be an integer"""
    gym.problems("gcd", level="3")


def misspelled_task(gym: ReasoningGym, problem: Problem) -> None:
    """Call: did you mean gcd"""
    gym.problems("gdc")


def misspelled_name_of_the_package(gym: ReasoningGym, problem: Problem) -> None:
    """Both: ReasoningGim"""
    from reasoning_gym_environment import ReasoningGim  # noqa: F401 - the import is the mistake


def completions_of_one_problem_in_place_of_pairs(
    gym: ReasoningGym, problem: Problem
) -> None:
    """Both: pairs.0 must be a problem and its completion"""
    gym.score_many([problem])


def score_as_a_number(gym: ReasoningGym, problem: Problem) -> None:
    """Both: 'Score' and 'float'"""
    [other] = gym.problems("gcd")
    _ = gym.score(other, "4") + 1.0


def levels_as_a_dictionary(gym: ReasoningGym, problem: Problem) -> None:
    """Both: not subscriptable"""
    stream: ProblemStream = gym.stream(["gcd"], complexity_mode="curriculum")
    _ = stream.levels()["gcd"]["level"]


def scores_that_teach_nothing(gym: ReasoningGym, problem: Problem) -> None:
    """Call: group_size of this stream must be the completions of each problem, got None"""
    gym.score(problem, "<answer>4</answer>")


def result_of_a_problem_that_the_stream_never_draws(
    gym: ReasoningGym, problem: Problem
) -> None:
    """Call: problem is of no level"""
    stream = gym.stream(["gcd"], complexity_mode="curriculum")
    stream.observe(gym.problems("gcd")[0], solved=8, attempts=8)
