# docker build -t reasoning-gym-environment .
# docker run --rm -p 8080:8080 -e REASONING_GYM_REWARDS_TOKEN=… reasoning-gym-environment rewards --host 0.0.0.0
# Pin the base image where you build: --build-arg BASE=python:3.12-slim@sha256:…
ARG BASE=python:3.12-slim
FROM ${BASE} AS build
WORKDIR /source
COPY . .
RUN python -m venv /venv \
    && /venv/bin/pip install --no-cache-dir --require-hashes -r deploy/requirements.lock \
    && /venv/bin/pip install --no-cache-dir --no-deps .

FROM ${BASE}
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH HF_HOME=/tmp/huggingface HOME=/tmp
USER 1000:1000
WORKDIR /data
ENTRYPOINT ["reasoning-gym-environment"]
CMD ["--help"]
