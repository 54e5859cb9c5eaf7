"""What Kafka throws over compressed data that it cannot decompress.

Follows ``CompressionType.forId`` and the streams of ``org.apache.kafka.common.compress``. Unlike
records that cannot be decoded, these exceptions are not what a recovering broker takes for the
end of the log.
"""

from __future__ import annotations

from typing import Final

from kdump.formats.compression import Buffer, Codec, decompress_chunks
from kdump.formats.errors import FormatError
from kdump.target.refusal import Refused

_CHUNK_BYTES: Final = 1 << 20


def require_decompressible(
    attributes: int, data: Buffer, file_name: str, position: int, *, magic: int = 2
) -> None:
    """Decompress ``data`` for nothing but to see that it can be.

    Args:
        attributes: of the batch or message, which name the codec.
        data: what is compressed.
        file_name: of the log.
        position: of the batch or message.
        magic: of the same.

    Raises:
        Refused: the codec is unknown, or the data is not its.
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
