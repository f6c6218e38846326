"""``python -m wonder_server.health``: exit 0 if the server of these settings is serving, else 1.

It is for health checks of containers. It reads the environment of the server and takes the address from the
data folder. With TLS, the certificate must also be valid for 127.0.0.1, or for the host in ``listen``.
"""

from __future__ import annotations

import sys

import grpc
from grpc_health.v1 import health_pb2

from wonder_server.settings import Settings, load
from wonder_server.settings.kinds import split_address


def main() -> int:
    """Call the health service once, with a timeout of two seconds. Return the exit code."""
    settings = load({})
    credentials = None
    if settings.tls_cert is not None:
        credentials = grpc.ssl_channel_credentials(settings.tls_cert.read_bytes())
    target = _target(settings)
    with (
        grpc.secure_channel(target, credentials) if credentials else grpc.insecure_channel(target)
    ) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        try:
            answer = check(health_pb2.HealthCheckRequest(), timeout=2)
        except grpc.RpcError as problem:
            print(f"{target} does not answer: {problem.code().name}", file=sys.stderr)
            return 1
    return int(answer.status != health_pb2.HealthCheckResponse.SERVING)


def _target(settings: Settings) -> str:
    try:
        listen = (settings.data_dir / "ADDRESS").read_text(encoding="ascii").strip()
    except OSError:
        listen = settings.listen
    host, port = split_address(listen)
    here = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"{here}:{port}"


if __name__ == "__main__":
    sys.exit(main())
