"""Flower's Control API: registers nodes and starts runs. flwr 1.41 has it as a command only, hence its inner parts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.cli.build import build_fab_from_disk
from flwr.common.serde import fab_to_proto, user_config_to_proto
from flwr.proto.control_pb2 import ListNodesRequest, ListRunsRequest, RegisterNodeRequest, StartRunRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from prowd.errors import RunError

__all__ = ["Control", "RunStatus"]


@dataclass(frozen=True)
class RunStatus:
    """Where a Flower run stands: pending, starting, running or finished, and then how."""

    stage: str
    outcome: str
    details: str


class Control:
    """A connection to a SuperLink; to be closed before the SuperLink is, which otherwise waits for it."""

    def __init__(self, address: str, authority: Path) -> None:
        self._client = ControlHttpClient.from_server_address(
            server_address=address,
            insecure=False,
            root_certificates=authority.read_bytes(),
            interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
        )

    def close(self) -> None:
        """Hang up."""
        self._client.close()

    def register(self, public_key: Path) -> int:
        """Let a node in; returns its number."""
        key = load_ssh_public_key(public_key.read_bytes())
        if not isinstance(key, EllipticCurvePublicKey):
            raise RunError(f"{public_key} is not an elliptic-curve key")
        return int(self._client.RegisterNode(RegisterNodeRequest(public_key=public_key_to_bytes(key))).node_id)

    def nodes(self) -> dict[int, str]:
        """The registered nodes: registered, online or offline."""
        return {int(node.node_id): str(node.status) for node in self._client.ListNodes(ListNodesRequest()).nodes_info}

    def start(self, app: Path, config: Mapping[str, str | int | float | bool]) -> int:
        """Start a run of an app directory; returns its number."""
        fab = build_fab_from_disk(app)
        request = StartRunRequest(
            fab=fab_to_proto(Fab(hashlib.sha256(fab).hexdigest(), fab, {})),
            override_config=user_config_to_proto({**config}),
            federation="",
            app_spec="",
        )
        try:
            reply = self._client.StartRun(request)
        except httpx.HTTPStatusError as error:
            raise RunError(f"Flower did not start the run: {error.response.text[:500]}") from error
        if not reply.HasField("run_id"):
            raise RunError("Flower did not start the run")
        return int(reply.run_id)

    def status(self, run: int) -> RunStatus:
        """Where a run stands."""
        found = self._client.ListRuns(ListRunsRequest(run_id=run)).run_dict[run].status
        return RunStatus(found.status, found.sub_status, found.details)
