"""The exceptions that Kafka throws for data that it cannot decompress.

Follows ``CompressionType.forId`` and the streams of ``org.apache.kafka.common.compress``. A
recovering broker ends the log at records that it cannot decode, but not at these exceptions.
"""

from __future__ import annotations

from typing import Final

from kdump.formats.buffer import Buffer
from kdump.formats.compression import Codec, decompress_chunks
from kdump.formats.errors import FormatError
from kdump.target.refusal import Refused

_CHUNK_BYTES: Final = 1 << 20


def require_decompressible(
    attributes: int, data: Buffer, file_name: str, position: int, *, magic: int = 2
) -> None:
    """Check that ``data`` can be decompressed.

    Args:
        attributes: of the batch or message; they contain the codec.
        data: the compressed bytes.
        position: of the batch or message.
        magic: of the batch or message.

    Raises:
        Refused: the codec is unknown, or the data is not in its format.
    """
    try:
        codec = Codec.of_attributes(attributes)
    except FormatError as problem:
        raise Refused(str(problem), file_name, "IllegalArgumentException", position) from problem
    try:
        for _ in decompress_chunks(codec, data, chunk_bytes=_CHUNK_BYTES, magic=magic):
            pass
    except FormatError as problem:
        raise Refused(str(problem), file_name, "KafkaException", position) from problem
