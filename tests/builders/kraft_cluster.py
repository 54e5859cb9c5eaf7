"""A real cluster: a set of nodes over one folder of disks.

Several may use the same :class:`~builders.cluster_jvms.ClusterJvms`, one after another: only the
first start of a JVM is slow.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from builders.broker import RequestFailed
from builders.cluster_clients import ClusterClients
from builders.cluster_jvms import ClusterJvms
from builders.cluster_nodes import CLUSTER_ID, NODES, PROPERTIES, Node
from builders.ports import HOST


class KraftCluster:
    """Nodes, and their log directories below ``folder``.

    With ``is_dynamic`` the voters are those of the metadata (kraft.version 1), else those of the
    configuration. ``properties`` are added to :data:`PROPERTIES` of each node.
    """

    def __init__(
        self,
        jvms: ClusterJvms,
        folder: Path,
        nodes: Iterable[Node],
        *,
        is_dynamic: bool = True,
        cluster_id: str = CLUSTER_ID,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.nodes = {node.node_id: node for node in nodes}
        self.clients = ClusterClients(jvms)
        self.is_dynamic = is_dynamic
        self._jvms = jvms
        self._cluster_id = cluster_id
        self._properties = dict(properties or {})
        self._jvm_of: dict[int, str] = {}

    @property
    def brokers(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_broker]

    @property
    def controllers(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_controller]

    def log_dirs(self, *node_ids: int) -> list[Path]:
        """Return the log directories of nodes; those of all brokers if none is named."""
        nodes = [self.nodes[each] for each in node_ids] or self.brokers
        return [self.folder / name for node in nodes for name in node.disks]

    def properties_file(self, node: Node) -> Path:
        """Write the properties of a node as they are now, and return the file."""
        addresses = [f"{HOST}:{each.controller_port}" for each in self.controllers]
        voters = [each.endpoint for each in self.controllers]
        quorum = (
            {"controller.quorum.bootstrap.servers": ",".join(addresses)}
            if self.is_dynamic
            else {"controller.quorum.voters": ",".join(voters)}
        )
        ports = []
        if node.is_broker:
            ports += [("PLAINTEXT", node.client_port), ("SASL", node.sasl_port)]
        if node.is_controller:
            ports += [("CONTROLLER", node.controller_port)]
        own = {
            "node.id": str(node.node_id),
            "process.roles": node.roles,
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports),
            "log.dirs": ",".join(str(self.folder / name) for name in node.disks),
        }
        given = PROPERTIES | own | quorum | self._properties
        if not node.is_broker:
            del given["inter.broker.listener.name"]
        path = self.folder / f"{node.node_id}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        return path

    # ---- Nodes -----------------------------------------------------------------------------------

    def format(self, *node_ids: int, voters: str | None = None) -> None:
        """Format the directories of nodes with Kafka's own tool; of all nodes if none is named.

        ``voters`` are the options that say which controllers vote, such as ``--standalone``. By
        default all controllers are voters, if the quorum is dynamic.
        """
        initial = f"--initial-controllers {','.join(each.voter for each in self.controllers)}"
        for node in [self.nodes[each] for each in node_ids] or list(self.nodes.values()):
            options = voters
            if options is None and self.is_dynamic:
                options = initial if node.is_controller else "--no-initial-controllers"
            config = self.properties_file(node)
            args = ["--config", str(config), "--cluster-id", self._cluster_id]
            self._jvms[NODES].ask("format", args=[*args, *(options or "").split()])

    def start(self, *node_ids: int, jvm: str = NODES) -> None:
        """Start nodes in a JVM, controllers first; all nodes if none is named.

        Brokers are unfenced then. They start when the controllers have committed the voters. A
        controller has started before there is a leader. A broker that copies what one leader has
        not committed truncates it to offset 0 when there is another leader, and fetches the voters
        again. But ``KRaftControlRecordStateMachine.truncateNewEntries`` keeps its next offset, so
        they are not read again, and the broker never finds a controller where it can register.

        Raises:
            RequestFailed: a node did not start, or the controllers do not commit.
        """
        nodes = [self.nodes[each] for each in node_ids] or list(self.nodes.values())
        for node in nodes:
            self._jvm_of[node.node_id] = jvm
        controllers = [each for each in nodes if each.is_controller]
        brokers = [each for each in nodes if not each.is_controller]
        self._start(controllers, jvm)
        if brokers:
            self._wait_for_voters()
        self._start(brokers, jvm)
        self.connect()

    def _start(self, nodes: Iterable[Node], jvm: str) -> None:
        files = {str(node.node_id): str(self.properties_file(node)) for node in nodes}
        if files:
            self._require_none(self._jvms[jvm].ask("start", nodes=files), jvm)

    def _wait_for_voters(self) -> None:
        """Wait until the controllers that run have committed what their first leader wrote."""
        started = [each for each in self.controllers if each.node_id in self._jvm_of]
        if started:
            addresses = ",".join(f"{HOST}:{each.controller_port}" for each in started)
            try:
                self.clients.ask("committed", controllers=addresses)
            except RequestFailed as failure:
                raise self._jvms[self._jvm_of[started[0].node_id]].failure(str(failure)) from None

    def connect(self) -> None:
        """Let clients know the brokers that were started."""
        started = [node.client_port for node in self.brokers if node.node_id in self._jvm_of]
        if started:
            addresses = [f"{HOST}:{port}" for port in started]
            self.clients.ask("connect", bootstrap=",".join(addresses))

    def stop(self, *node_ids: int) -> None:
        """Stop nodes as SIGTERM does, brokers first; all nodes if none is named."""
        ids = node_ids or tuple(self._jvm_of)
        brokers = [each for each in ids if self.nodes[each].is_broker]
        for group in (brokers, [each for each in ids if each not in brokers]):
            for jvm in {self._jvm_of[each] for each in group}:
                of_jvm = [each for each in group if self._jvm_of[each] == jvm]
                self._require_none(self._jvms[jvm].ask("stop", nodes=of_jvm), jvm)
            for each in group:
                del self._jvm_of[each]

    def kill(self, *jvms: str) -> None:
        """Kill JVMs with all of their nodes, as ``kill -9`` does; those of all nodes by default."""
        killed = set(jvms or self._jvm_of.values())
        if killed:
            self._jvms.kill(*killed)
        self._jvm_of = {each: jvm for each, jvm in self._jvm_of.items() if jvm not in killed}

    def logged(self, node_id: int) -> list[str]:
        """Return what was logged in the JVM of a node that runs, also by others in it."""
        return self._jvms.logged(self._jvm_of[node_id])

    @contextlib.contextmanager
    def running(self, *node_ids: int) -> Iterator[ClusterClients]:
        """Start nodes for a context, and stop all nodes at its end, or kill them if it fails."""
        try:
            self.start(*node_ids)
            yield self.clients
            self.stop()
        finally:
            self.kill()

    def _require_none(self, failures: Mapping[str, str], jvm: str) -> None:
        if failures:
            reasons = (f"node {node}: {why}" for node, why in failures.items())
            raise self._jvms[jvm].failure("; ".join(reasons))
