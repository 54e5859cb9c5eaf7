import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.ConsumerProtocolAssignment;
import org.apache.kafka.common.message.ConsumerProtocolSubscription;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.Struct;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.common.utils.ByteUtils;

/**
 * Writes segments of internal topics. Their records have random values of every type and version that Kafka knows; some
 * are invalid: truncated, of an unknown type or version, or without a key.
 *
 * <p>{@code java InternalTopicWriter DIRECTORY SEED COUNT} writes {@code DIRECTORY/TOPIC-NUMBER/} for the numbers 0 to
 * COUNT - 1, alternating between the topics. The values come from the schemas in Kafka's generated classes.
 */
public final class InternalTopicWriter {
    private static final int RECORDS = 60;

    private final Random random;

    private InternalTopicWriter(Random random) {
        this.random = random;
    }

    /** A key and a value; both may be null. */
    private record Pair(byte[] key, byte[] value) { }

    private interface Topic {
        Pair record(InternalTopicWriter writer);
    }

    private static final Map<String, Topic> TOPICS = new LinkedHashMap<>();

    static {
        TOPICS.put("offsets", InternalTopicWriter::group);
        TOPICS.put("transaction-log", InternalTopicWriter::transaction);
        TOPICS.put("share-group-state", InternalTopicWriter::share);
        TOPICS.put("cluster-metadata", InternalTopicWriter::clusterMetadata);
        TOPICS.put("remote-log-metadata", InternalTopicWriter::remoteLogMetadata);
    }

    public static void main(String[] args) throws IOException {
        Path root = Path.of(args[0]);
        long seed = Long.parseLong(args[1]);
        int count = Integer.parseInt(args[2]);
        List<String> topics = List.copyOf(TOPICS.keySet());
        for (int number = 0; number < count; number++) {
            String topic = topics.get(number % topics.size());
            Path directory = Files.createDirectories(root.resolve(topic + "-" + number));
            InternalTopicWriter writer = new InternalTopicWriter(new Random(seed * 1_000_003L + number));
            writer.writeSegment(TOPICS.get(topic), directory.resolve("00000000000000000000.log"));
        }
    }

    private void writeSegment(Topic topic, Path path) throws IOException {
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(new ByteBufferOutputStream(1 << 16),
            RecordBatch.CURRENT_MAGIC_VALUE, Compression.NONE, TimestampType.CREATE_TIME, 0, RecordBatch.NO_TIMESTAMP,
            RecordBatch.NO_PRODUCER_ID, RecordBatch.NO_PRODUCER_EPOCH, RecordBatch.NO_SEQUENCE, false, false, 0,
            Integer.MAX_VALUE);
        for (int i = 0; i < RECORDS; i++) {
            Pair pair = damaged(topic.record(this));
            builder.append(1_767_225_600_000L + i, pair.key, pair.value);
        }
        try (FileChannel file = FileChannel.open(path, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
            file.write(builder.build().buffer());
        }
    }

    // ---- Topics ----------------------------------------------------------------------------------------------------

    private Pair group() {
        var type = any(org.apache.kafka.coordinator.group.generated.CoordinatorRecordType.values());
        return coordinated(type.id(), type.newRecordKey(), type.newRecordValue());
    }

    private Pair transaction() {
        var type = any(org.apache.kafka.coordinator.transaction.generated.CoordinatorRecordType.values());
        return coordinated(type.id(), type.newRecordKey(), type.newRecordValue());
    }

    private Pair share() {
        var type = any(org.apache.kafka.coordinator.share.generated.CoordinatorRecordType.values());
        return coordinated(type.id(), type.newRecordKey(), type.newRecordValue());
    }

    private Pair clusterMetadata() {
        MetadataRecordType type = any(MetadataRecordType.values());
        return new Pair(null, framed(type.id(), type.newMetadataRecord()));
    }

    private Pair remoteLogMetadata() {
        var type = any(org.apache.kafka.server.log.remote.metadata.storage.generated.MetadataRecordType.values());
        return new Pair(random.nextBoolean() ? null : new byte[3], framed(type.id(), type.newMetadataRecord()));
    }

    /** Writes the record type before the key and the version before the value, as coordinators do. */
    private Pair coordinated(short type, ApiMessage key, ApiMessage value) {
        Schema[] keySchemas = schemas(key);
        byte[] keyBytes = prefixed(type, encoded(keySchemas[keySchemas.length - 1]));
        if (random.nextInt(10) == 0) {
            return new Pair(keyBytes, null);
        }
        short version = version(value);
        return new Pair(keyBytes, prefixed(version, encoded(schemas(value)[version])));
    }

    /** Writes frame version, type and version before the message, as in the metadata topics. */
    private byte[] framed(short type, ApiMessage message) {
        short version = version(message);
        byte[] content = encoded(schemas(message)[version]);
        ByteBuffer buffer = ByteBuffer.allocate(content.length + 15);
        ByteUtils.writeUnsignedVarint(1, buffer);
        ByteUtils.writeUnsignedVarint(type, buffer);
        ByteUtils.writeUnsignedVarint(version, buffer);
        return Arrays.copyOf(buffer.put(content).array(), buffer.position());
    }

    private short version(ApiMessage message) {
        int lowest = message.lowestSupportedVersion();
        return (short) (lowest + random.nextInt(message.highestSupportedVersion() - lowest + 1));
    }

    private static byte[] prefixed(short number, byte[] content) {
        return ByteBuffer.allocate(2 + content.length).putShort(number).put(content).array();
    }

    private Pair damaged(Pair pair) {
        return switch (random.nextInt(30)) {
            case 0 -> new Pair(cut(pair.key), pair.value);
            case 1 -> new Pair(pair.key, cut(pair.value));
            case 2 -> new Pair(flipped(pair.key), pair.value);
            case 3, 4 -> new Pair(pair.key, flipped(pair.value));
            case 5 -> new Pair(pair.key, pair.value == null ? null : Arrays.copyOf(pair.value, pair.value.length + 3));
            default -> pair;
        };
    }

    private byte[] cut(byte[] content) {
        return content == null ? null : Arrays.copyOf(content, random.nextInt(content.length + 1));
    }

    /** Damages the first bytes more often: they hold versions, types and lengths. */
    private byte[] flipped(byte[] content) {
        if (content == null || content.length == 0) {
            return content;
        }
        byte[] changed = content.clone();
        int reach = random.nextBoolean() ? Math.min(4, content.length) : content.length;
        changed[random.nextInt(reach)] ^= (byte) (1 << random.nextInt(8));
        return changed;
    }

    // ---- Random values of a schema ---------------------------------------------------------------------------------

    private static Schema[] schemas(ApiMessage message) {
        try {
            return (Schema[]) message.getClass().getField("SCHEMAS").get(null);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    private byte[] encoded(Schema schema) {
        Struct value = struct(schema);
        ByteBuffer buffer = ByteBuffer.allocate(value.sizeOf());
        value.writeTo(buffer);
        return buffer.array();
    }

    private Struct struct(Schema schema) {
        Struct struct = new Struct(schema);
        for (BoundField field : schema.fields()) {
            struct.set(field, value(field.def.type, field.def.name));
        }
        return struct;
    }

    private Object value(Type type, String name) {
        if (type instanceof TaggedFields tagged) {
            return taggedFields(tagged);
        }
        if (type.isNullable() && random.nextInt(4) == 0) {
            return null;
        }
        if (type instanceof Schema schema) {
            return struct(schema);
        }
        if (type.arrayElementType().isPresent()) {
            Object[] elements = new Object[random.nextInt(4)];
            Arrays.setAll(elements, i -> value(type.arrayElementType().get(), name));
            return elements;
        }
        return switch (type.toString().replace("COMPACT_", "").replace("NULLABLE_", "")) {
            case "BOOLEAN" -> random.nextBoolean();
            case "INT8" -> (byte) (random.nextInt(4) == 0 ? random.nextInt() : random.nextInt(6));
            case "INT16" -> (short) number(Short.MAX_VALUE);
            case "UINT16" -> random.nextInt(65_536);
            case "INT32" -> (int) number(Integer.MAX_VALUE);
            case "UINT32" -> (long) random.nextInt(Integer.MAX_VALUE);
            case "INT64" -> number(Long.MAX_VALUE);
            case "FLOAT64" -> real();
            case "UUID" -> random.nextInt(8) == 0 ? Uuid.ZERO_UUID : new Uuid(random.nextLong(), random.nextLong());
            case "STRING" -> string(name);
            case "BYTES" -> ByteBuffer.wrap(bytes(name));
            default -> throw new IllegalStateException("no values are known for " + type);
        };
    }

    private TreeMap<Integer, Object> taggedFields(TaggedFields type) {
        TreeMap<Integer, Object> values = new TreeMap<>();
        for (Map.Entry<Integer, Field> field : type.fields().entrySet()) {
            if (random.nextBoolean()) {
                values.put(field.getKey(), value(field.getValue().type, field.getValue().name));
            }
        }
        if (random.nextInt(8) == 0) {
            int tag = 100 + random.nextInt(1000);
            values.put(tag, new RawTaggedField(tag, new byte[random.nextInt(20)]));
        }
        return values;
    }

    /** Returns mostly small positive numbers, so that more records pass the checks of readers. */
    private long number(long greatest) {
        return switch (random.nextInt(8)) {
            case 0 -> -1;
            case 1 -> greatest;
            case 2 -> -greatest - 1;
            case 3 -> greatest / (1 + random.nextInt(1000));
            default -> random.nextInt(100);
        };
    }

    /** Returns numbers whose shortest decimal form is the same in every Java release. */
    private double real() {
        double[] odd = {0.0, -0.0, Double.NaN, Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY, 1e7, 1e-3, 1e-4,
            123456789.0};
        return random.nextBoolean() ? odd[random.nextInt(odd.length)] : (random.nextInt(1 << 20) - (1 << 19)) / 8.0;
    }

    private String string(String name) {
        if (name.equals("protocol_type")) {
            return random.nextInt(3) == 0 ? "connect" : "consumer";
        }
        return switch (random.nextInt(6)) {
            case 0 -> "";
            case 1 -> "quote \" slash \\ / line \n tab \t zero \u0000 del \u007f <&>";
            case 2 -> "\u00e9\u4e16\u2028\ud83d\ude00";
            default -> name + "-" + random.nextInt(50);
        };
    }

    /** Returns a subscription or assignment of the consumer protocol, or random bytes. */
    private byte[] bytes(String name) {
        if (random.nextInt(4) != 0 && (name.equals("subscription") || name.equals("assignment"))) {
            boolean subscribes = name.equals("subscription");
            ApiMessage message = subscribes ? new ConsumerProtocolSubscription() : new ConsumerProtocolAssignment();
            short version = version(message);
            return prefixed(version, encoded(schemas(message)[version]));
        }
        byte[] content = new byte[random.nextInt(20)];
        random.nextBytes(content);
        return content;
    }

    private <T> T any(T[] values) {
        return values[random.nextInt(values.length)];
    }
}
