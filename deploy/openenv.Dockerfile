# docker build -f deploy/openenv.Dockerfile -t reasoning-gym-openenv .
# docker run --rm -p 8000:8000 -e REASONING_GYM_OPENENV_TOKEN=… reasoning-gym-openenv --env.complexity_mode curriculum
ARG BASE=python:3.12-slim
FROM ${BASE} AS build
WORKDIR /source
COPY . .
RUN python -m venv /venv \
    && /venv/bin/pip install --no-cache-dir --require-hashes -r deploy/openenv.lock \
    && /venv/bin/pip install --no-cache-dir --no-deps .

FROM ${BASE}
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH HF_HOME=/tmp/huggingface HOME=/tmp
USER 1000:1000
WORKDIR /data
EXPOSE 8000
ENTRYPOINT ["reasoning-gym-environment", "openenv", "--host", "0.0.0.0", "--port", "8000"]
