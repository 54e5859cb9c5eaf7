"""Answers about configurations: what a broker told, with Kafka's defaults for what nobody set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from kdump.formats.configs.config_definitions import ConfigScope
from kdump.formats.java.java_numbers import parse_int
from kdump.formats.names import is_topic_name
from kdump.serve.answering import Answering, Caller, Serving
from kdump.serve.message_shapes import MalformedMessage
from kdump.serve.messages import Answer, Request, built, class_within
from kdump.state.metadata.described_configs import DescribedConfig, NodeConfigs
from kdump.state.metadata.metadata_image import EntityKind, MetadataImage

DESCRIBE_CONFIGS: Final = 32
LIST_CONFIG_RESOURCES: Final = 74
LARGEST_CONFIGS_BYTES: Final = 64 << 20
"""Of an answer, about: the configurations of 17,000 topics, or of 10,000 with synonyms."""

_SCOPES: Final = {
    2: ConfigScope.TOPIC,
    4: ConfigScope.BROKER,
    16: ConfigScope.CLIENT_METRICS,
    32: ConfigScope.GROUP,
}
"""By the numbers of ``ConfigResource.Type``."""
_WORDS: Final = {
    ConfigScope.TOPIC: "topic",
    ConfigScope.BROKER: "broker",
    ConfigScope.CLIENT_METRICS: "client_metrics",
    ConfigScope.GROUP: "group",
}
"""Words of the metadata."""
_CLIENT_METRICS: Final = 16
_SHARED: Final = 8192
"""So many properties are kept as they are sent: those that nobody set are the same everywhere."""
_BYTES_EACH: Final = 96
"""Of a property with its name and value, about."""
_SYNONYM_BYTES: Final = 64


class ConfigAnswers:
    """Answers ``DescribeConfigs`` and ``ListConfigResources``. Follows ``ConfigHelper``."""

    def __init__(self, serving: Serving, image: MetadataImage) -> None:
        self._serving = serving
        self._cluster = serving.cluster
        self._configs = image.of(EntityKind.CONFIG)
        self._node = NodeConfigs.of(serving.cluster.settings)

        @lru_cache(maxsize=_SHARED)
        def entry(schema: Any, config: DescribedConfig, with_synonyms: bool) -> Any:
            return built(schema, _entry(config, with_synonyms=with_synonyms))

        self._shared_entry = entry

    def handlers(self) -> Mapping[int, Answering]:
        return {
            DESCRIBE_CONFIGS: self.describe_configs,
            LIST_CONFIG_RESOURCES: self.list_config_resources,
        }

    async def describe_configs(self, request: Request, _caller: Caller) -> Answer:
        """The effective configuration of each resource."""
        return await self._serving.threads.run(self._described, request)

    def size_bytes(self, request: Request) -> int:
        """How much memory the answer to a request for configurations takes, about.

        Raises:
            MalformedMessage: it would be too much.
        """
        each = _BYTES_EACH
        each += _SYNONYM_BYTES if request.body.include_synonyms else 0
        found = sum(
            each * self._count(one) + self._own_bytes(one) for one in request.body.resources
        )
        if found > LARGEST_CONFIGS_BYTES:
            raise MalformedMessage(
                f"it asks for {len(request.body.resources)} configurations, about {found} bytes;"
                f" the most is {LARGEST_CONFIGS_BYTES}"
            )
        return found

    def _count(self, asked: Any) -> int:
        """The properties of a resource, about."""
        scope = _SCOPES.get(asked.resource_type)
        return 400 if scope is ConfigScope.BROKER else 40

    def _own_bytes(self, asked: Any) -> int:
        """What is set of a resource, twice: each value is also that of its first synonym."""
        scope = _SCOPES.get(asked.resource_type)
        if scope is None:
            return 0
        own = self._configs.get(f"{_WORDS[scope]}:{asked.resource_name}", {})
        return 2 * sum(len(name) + len(text or "") for name, text in own.items())

    def _described(self, request: Request) -> Answer:
        result = class_within(load_response_schema(DESCRIBE_CONFIGS, request.version), "results")
        entry = class_within(result, "configs")
        with_synonyms = bool(request.body.include_synonyms)
        return {
            "results": [
                built(
                    result,
                    {
                        "resource_type": each.resource_type,
                        "resource_name": each.resource_name,
                        **self._result(each, entry, with_synonyms),
                    },
                )
                for each in request.body.resources
            ]
        }

    def _result(self, asked: Any, schema: Any, with_synonyms: bool) -> Answer:
        scope = _SCOPES.get(asked.resource_type)
        if scope is None:
            return _refused("the disks do not tell that configuration")
        found = self._found(scope, asked.resource_name)
        if not isinstance(found, list):
            return found
        wanted = asked.configuration_keys
        return {
            "error_message": None,
            "configs": [
                self._shared_entry(schema, each, with_synonyms)
                for each in found
                if not wanted or each.name in wanted
            ],
        }

    def _found(self, scope: ConfigScope, name: str) -> list[DescribedConfig] | Answer:
        if scope is ConfigScope.BROKER:
            return self._of_broker(name)
        if scope is ConfigScope.TOPIC:
            if not is_topic_name(name):
                return _refused(f"{name} is no name of a topic", ErrorCode.invalid_topic_exception)
            if name not in self._cluster.topics:
                return _refused(None, ErrorCode.unknown_topic_or_partition)
        elif not name:
            return _refused("a name must not be empty")
        return self._node.resource(scope, self._configs.get(f"{_WORDS[scope]}:{name}", {}))

    def _of_broker(self, name: str) -> list[DescribedConfig] | Answer:
        if not name:
            return self._node.every_broker()
        node_id = parse_int(name)
        if node_id is None:
            return _refused(f"a broker id must be an integer, but it is: {name}")
        if node_id != self._cluster.node_id:
            return _refused(f"the one node is {self._cluster.node_id}, not {name}")
        return self._node.broker()

    async def list_config_resources(self, request: Request, _caller: Caller) -> Answer:
        """Topics, the one node, and the groups and client metrics for which something is set.

        In version 0 only the client metrics. Follows ``KafkaApis.handleListConfigResources``.
        """
        if request.version == 0:
            wanted = [_CLIENT_METRICS]
        else:
            wanted = list(dict.fromkeys(request.body.resource_types)) or list(_SCOPES)
        if any(each not in _SCOPES for each in wanted):
            return {"error_code": ErrorCode.unsupported_version, "config_resources": ()}
        return {
            "config_resources": [
                {"resource_name": name, "resource_type": kind}
                for kind in wanted
                for name in self._resources(_SCOPES[kind])
            ]
        }

    def _resources(self, scope: ConfigScope) -> Iterable[str]:
        if scope is ConfigScope.TOPIC:
            return self._cluster.topics
        if scope is ConfigScope.BROKER:
            return [str(self._cluster.node_id)]
        return self._with_own(scope)

    def _with_own(self, scope: ConfigScope) -> Iterator[str]:
        prefix = f"{_WORDS[scope]}:"
        return (each.removeprefix(prefix) for each in self._configs if each.startswith(prefix))


def _entry(config: DescribedConfig, *, with_synonyms: bool) -> Answer:
    """A property, without a documentation: kdump has none of its own."""
    return {
        "name": config.name,
        "value": config.value,
        "read_only": config.is_read_only,
        "config_source": config.source.value,
        "is_sensitive": config.is_secret,
        "config_type": config.type.value,
        "synonyms": [
            {"name": each.name, "value": each.value, "source": each.source.value}
            for each in config.synonyms
            if with_synonyms
        ],
        "documentation": None,
    }


def _refused(why: str | None, error: ErrorCode = ErrorCode.invalid_request) -> Answer:
    return {"error_code": error, "error_message": why, "configs": ()}
