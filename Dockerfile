# syntax=docker/dockerfile:1
# A server with CPU builds of torch; for its embedders and rerankers on a GPU: --build-arg TORCH=cu130
ARG PYTHON_VERSION=3.12

FROM python:${PYTHON_VERSION}-slim-bookworm AS build
ARG TORCH=cpu
ARG EXTRAS=mcp
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PYTHONDONTWRITEBYTECODE=1
RUN python -m venv /opt/thresher
WORKDIR /src
COPY pyproject.toml PYPI.md LICENSE ./
# Torch is most of the image and changes least: a layer of its own, in the version that the project asks for.
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
RUN version="$(grep -m 1 -o '"torch==[0-9.]*"' pyproject.toml | tr -d '"')" \
    && /opt/thresher/bin/pip install --index-url "https://download.pytorch.org/whl/${TORCH}" "${version}"
COPY api api
COPY context context
COPY corpus corpus
COPY engine engine
COPY train train
RUN /opt/thresher/bin/pip install ".[${EXTRAS}]" \
    && /opt/thresher/bin/python -m compileall -q -j 0 /opt/thresher/lib

FROM python:${PYTHON_VERSION}-slim-bookworm
# tini hands signals on, and buries the children that a first process inherits.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 thresher \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin thresher \
    && install --directory --owner=10001 --group=10001 --mode=0700 /data
COPY --from=build /opt/thresher /opt/thresher
ENV PATH=/opt/thresher/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    ANONYMIZED_TELEMETRY=False \
    THRESHER_HOME=/data \
    THRESHER_HOST=0.0.0.0 \
    THRESHER_LOG_FORMAT=json \
    THRESHER_LOG_LEVEL=info
VOLUME /data
USER 10001:10001
WORKDIR /data
EXPOSE 8420
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8420/healthz', timeout=3)"]
# It listens on every address of the container, and so refuses to start without a key: pass THRESHER_API_KEY.
ENTRYPOINT ["tini", "--", "thresher"]
CMD ["serve"]
