# docker build -t reasoning-gym-environment .
# docker run --rm -p 8080:8080 -e REASONING_GYM_REWARDS_TOKEN=… reasoning-gym-environment rewards --host 0.0.0.0
#
# With OpenEnv's server as the command of the image:
# docker build --build-arg FRAMEWORK=openenv -t reasoning-gym-openenv .
# docker run --rm -p 8000:8000 -e REASONING_GYM_OPENENV_TOKEN=… reasoning-gym-openenv --env.complexity_mode curriculum
#
# Pin the base image where you build: --build-arg BASE=python:3.12-slim@sha256:…
ARG BASE=python:3.12-slim
# A stage below: none or openenv.
ARG FRAMEWORK=none

FROM ${BASE} AS build
ARG FRAMEWORK
# pycosat, which reasoning-gym pins, has no wheel.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev
WORKDIR /source
COPY . .
# A constraint with hashes refuses every package that has none.
RUN python -m venv /venv \
    && framework=$([ "$FRAMEWORK" = none ] || echo "$FRAMEWORK") \
    && /venv/bin/pip install --no-cache-dir --constraint deploy/requirements.lock \
        --requirement requirements.txt $framework \
    && /venv/bin/pip install --no-cache-dir --no-deps .

FROM ${BASE} AS none
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH HF_HOME=/tmp/huggingface HOME=/tmp
USER 1000:1000
WORKDIR /data
ENTRYPOINT ["reasoning-gym-environment"]
CMD ["--help"]

FROM none AS openenv
EXPOSE 8000
ENTRYPOINT ["reasoning-gym-environment", "openenv", "--host", "0.0.0.0", "--port", "8000"]
CMD []

FROM ${FRAMEWORK}
