# A server that keeps everything in the volume /data and listens on port 50051.
# Beyond loopback it wants TLS and tokens, or WONDER_INSECURE=true: see docs/settings.md.
FROM python:3.11-slim AS build
WORKDIR /src
RUN python -m venv /opt/wonder
COPY requirements.txt .
RUN /opt/wonder/bin/pip install --no-cache-dir --require-hashes -r requirements.txt
COPY pyproject.toml LICENSE ./
COPY server server
COPY gen/python gen/python
COPY sdk/python sdk/python
RUN /opt/wonder/bin/pip install --no-cache-dir --no-build-isolation --no-deps . ./sdk/python

FROM python:3.11-slim
# The sandbox of agents' commands needs bubblewrap; repositories and artifacts need git.
RUN apt-get update \
    && apt-get install -y --no-install-recommends bubblewrap git ca-certificates \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin wonder \
    && install -d -o wonder -g wonder -m 0700 /data
COPY --from=build /opt/wonder /opt/wonder
ENV PATH=/opt/wonder/bin:$PATH \
    WONDER_DATA_DIR=/data \
    WONDER_LISTEN=0.0.0.0:50051 \
    WONDER_LOG_FORMAT=json
USER wonder
VOLUME /data
EXPOSE 50051
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s \
    CMD ["python", "-m", "wonder_server.health"]
STOPSIGNAL SIGTERM
CMD ["wonder", "serve"]
