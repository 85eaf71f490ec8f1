"""Plans that list every move there is, for verifiers that skip the moves that can't be made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def possible_moves(answer: str, entry: Mapping[str, Any]) -> float:
    """The share of the plan's moves that can be made when their turn comes.

    The question asks for an agent to be named only if it has something to do.
    """
    from reasoning_gym.games.boxnet import action_from_response  # only workers come here

    state = entry["metadata"]["initial_state"]
    made = listed = 0
    try:
        for step in json.loads(answer):
            for agent, move in step.items():
                after = action_from_response(state, [{agent: move}])
                made += after != state
                listed += 1
                state = after
    except json.JSONDecodeError:  # the verifier can't read it either
        return 1.0
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError):
        return 0.0  # the verifier raises
    return made / listed if listed else 1.0
