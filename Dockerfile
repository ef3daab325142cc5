# One image for every party of a deployment: `deploy serve`, `deploy join` and the rest of `idiolect deploy`.
#   docker build --tag idiolect-deploy .                          the reference transport
#   docker build --tag idiolect-deploy --build-arg EXTRA=flare .  NVIDIA FLARE
FROM python:3.11-slim
ARG EXTRA=deploy
COPY pyproject.toml README.md LICENSE /source/
COPY src /source/src
RUN pip install --no-cache-dir "/source[${EXTRA}]" && rm -r /source
# kits are written to: they belong to this user
RUN useradd --create-home --uid 1000 party
USER party
ENTRYPOINT ["idiolect", "deploy"]
