"""The reward service on a running Ray cluster: `serve run ray_serve:app` in this folder.

Each replica runs the service's application with a gym of its own. Streams of problems are disabled,
since each replica would have its own. For tasks of your own, pass `task_modules=["./my_tasks.py"]`
to the gym, and `runtime_env={"working_dir": "."}` to Ray.
"""

from fastapi import FastAPI
from ray import serve

from reasoning_gym_environment import AsyncReasoningGym
from reasoning_gym_environment.service.app import ServiceSettings, create_app


def build_app() -> FastAPI:
    """Return a replica's application, with one worker process of each kind."""
    settings = ServiceSettings(side_by_side=2)
    return create_app(AsyncReasoningGym(processes=1), settings, owns_gym=True)


@serve.deployment(
    ray_actor_options={"num_cpus": 2},  # a generator and a verifier host
    max_ongoing_requests=512,
    autoscaling_config={
        "min_replicas": 1,
        "max_replicas": 16,
        "target_ongoing_requests": 64,
    },
    graceful_shutdown_timeout_s=180,  # the longest group may take 150 s
)
@serve.ingress(build_app)
class Rewards:
    """One replica, whose `app` Ray builds, starts and closes."""

    app: FastAPI

    async def check_health(self) -> None:
        """Have Ray replace this replica if its workers are not up."""
        if not self.app.state.scorers.ready:
            raise RuntimeError("no worker process is up")


app = Rewards.bind()
