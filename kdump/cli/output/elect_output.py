"""What ``kdump diff --elect`` says and writes: what each choice loses, and files for elections."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

from msgspec.structs import asdict

from kdump.cli.output.out_file import OutFile
from kdump.cli.output.rendering import Row
from kdump.formats.names import TopicPartition
from kdump.jobs.diff.elections import Election, PossibleLeader, brokers, by_broker
from kdump.words import counted


def election_rows(found: Sequence[Election], files: Mapping[int, str]) -> Iterator[Row]:
    """Make a row for each partition without a leader, for programs."""
    for each in found:
        node_id = None if each.elected is None else each.elected.node_id
        yield {
            "type": "election",
            "topic": each.key.topic,
            "partition": each.key.partition,
            "elected_node_id": node_id,
            "file": None if node_id is None else files[node_id],
            "problem": each.problem,
            "missing_node_ids": list(each.missing),
            "candidates": [_candidate_row(one) for one in each.candidates],
        }


def _candidate_row(candidate: PossibleLeader) -> Row:
    """Leave out what only orders the candidates."""
    return {name: value for name, value in asdict(candidate).items() if name != "standing"}


def write_elections(name: str, found: Sequence[Election]) -> dict[int, str]:
    """Write a file for each broker to elect; returns their names, by broker.

    Raises:
        KdumpError: one exists, or cannot be written.
    """
    path = PurePath(name)
    elected = by_broker(found)
    files = {
        node_id: OutFile.checked(
            str(path.with_name(f"{path.stem}-{node_id}{path.suffix}")), is_replaced=False
        )
        for node_id in elected
    }
    for node_id, keys in elected.items():
        files[node_id].write([_document(keys)])
    return {node_id: out.name for node_id, out in files.items()}


def _document(keys: Sequence[TopicPartition]) -> bytes:
    partitions = [{"topic": key.topic, "partition": key.partition} for key in keys]
    return json.dumps({"partitions": partitions}, indent=1).encode() + b"\n"


def election_lines(found: Sequence[Election], files: dict[int, str]) -> Iterator[str]:
    """Say what each choice loses, and how to elect the best ones."""
    if not found:
        yield "no partition is without a leader, by the cluster's metadata"
        return
    yield f"{counted(len(found), 'partition')} without a leader, by the cluster's metadata:"
    for each in found:
        if each.problem is not None:
            yield f"{each.key}: {each.problem}"
            continue
        chosen, *others = each.candidates
        parts = [f"{each.key}: elect broker {chosen.node_id}, {_loses(chosen)}"]
        parts += [f"broker {other.node_id}: {_loses(other)}" for other in others]
        if each.missing:
            parts.append(f"the replica of {brokers(each.missing)} is not here, and may have more")
        yield "; ".join(parts)
    counts = {node_id: len(keys) for node_id, keys in by_broker(found).items()}
    for node_id, name in files.items():
        yield (
            f"start broker {node_id} without the other brokers, elect its"
            f" {counted(counts[node_id], 'partition')}, and stop it:"
        )
        yield (
            "  kafka-leader-election.sh --bootstrap-server HOST:PORT --election-type unclean"
            f" --path-to-json-file {name}"
        )
    if files:
        yield "then start all brokers"


def _loses(candidate: PossibleLeader) -> str:
    if candidate.refusal is not None:
        return f"no broker loads it: {candidate.refusal}"
    lost = f"{counted(candidate.lost_records, 'record')} lost"
    return f"{lost}, and its log is damaged" if candidate.is_damaged else lost
