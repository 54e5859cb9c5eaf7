import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.ConsumerProtocolAssignment;
import org.apache.kafka.common.message.ConsumerProtocolSubscription;
import org.apache.kafka.common.message.KRaftVersionRecord;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.message.SnapshotFooterRecord;
import org.apache.kafka.common.message.SnapshotHeaderRecord;
import org.apache.kafka.common.message.VotersRecord;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.ByteUtils;

/**
 * Prints records of every type and version in Kafka's internal topics, with the text that the parsers of
 * {@code kafka-dump-log} print for each.
 *
 * <p>{@code java SchemaSamples SEED COUNT} generates COUNT valid and COUNT damaged records of each type and version from
 * the schemas in Kafka's generated classes. A line is one record with columns separated by tabs: the decoder, the
 * offset, then in hex the key, the value, the text of the key and the text of the payload, or {@code -} if there is
 * none. Control records have the decoder {@code control} and their text in the last column; if the official tool fails,
 * the text columns are {@code !}.
 */
public final class SchemaSamples {
    private static final int LARGEST_RECORD = 1 << 16;
    private static final int MEMBERS_OF_AN_ARRAY = 4;
    private static final String LETTERS = "az09-_ \"\\/\n\t\u0001\u001f\u007f\u00e9\u2028\u6f22";

    private final Random random;
    private final PrintStream out;

    private SchemaSamples(long seed, PrintStream out) {
        this.random = new Random(seed);
        this.out = out;
    }

    /** A kind of record in one version: the first bytes of its key and value, and their schemas. */
    private record Kind(byte[] keyPrefix, Schema key, byte[] valuePrefix, Schema value) { }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false, StandardCharsets.UTF_8);
        SchemaSamples samples = new SchemaSamples(Long.parseLong(args[0]), out);
        int count = Integer.parseInt(args[1]);
        samples.printAll("offsets", "OffsetsMessageParser", groupRecords(), count);
        samples.printAll("transaction-log", "TransactionLogMessageParser", transactionRecords(), count);
        samples.printAll("share-group-state", "ShareGroupStateMessageParser", shareRecords(), count);
        samples.printAll("cluster-metadata", "ClusterMetadataLogMessageParser", clusterMetadataRecords(), count);
        samples.printAll("remote-log-metadata", "RemoteMetadataLogMessageParser", remoteLogMetadataRecords(), count);
        samples.printControlRecords(controlRecords(), count);
        out.flush();
    }

    // ---- Kinds of records ------------------------------------------------------------------------------------------

    private static List<Kind> groupRecords() throws ReflectiveOperationException {
        List<Kind> kinds = new ArrayList<>();
        for (var type : org.apache.kafka.coordinator.group.generated.CoordinatorRecordType.values()) {
            kinds.addAll(coordinated(type.id(), type.newRecordKey(), type.newRecordValue()));
        }
        return kinds;
    }

    private static List<Kind> transactionRecords() throws ReflectiveOperationException {
        List<Kind> kinds = new ArrayList<>();
        for (var type : org.apache.kafka.coordinator.transaction.generated.CoordinatorRecordType.values()) {
            kinds.addAll(coordinated(type.id(), type.newRecordKey(), type.newRecordValue()));
        }
        return kinds;
    }

    private static List<Kind> shareRecords() throws ReflectiveOperationException {
        List<Kind> kinds = new ArrayList<>();
        for (var type : org.apache.kafka.coordinator.share.generated.CoordinatorRecordType.values()) {
            kinds.addAll(coordinated(type.id(), type.newRecordKey(), type.newRecordValue()));
        }
        return kinds;
    }

    private static List<Kind> clusterMetadataRecords() throws ReflectiveOperationException {
        List<Kind> kinds = new ArrayList<>();
        for (MetadataRecordType type : MetadataRecordType.values()) {
            kinds.addAll(framed(type.id(), type.newMetadataRecord()));
        }
        return kinds;
    }

    private static List<Kind> remoteLogMetadataRecords() throws ReflectiveOperationException {
        List<Kind> kinds = new ArrayList<>();
        for (var type : org.apache.kafka.server.log.remote.metadata.storage.generated.MetadataRecordType.values()) {
            kinds.addAll(framed(type.id(), type.newMetadataRecord()));
        }
        return kinds;
    }

    private static List<Kind> controlRecords() {
        Schema marker = new Schema(new Field("coordinator_epoch", Type.INT32, ""));
        return List.of(
            new Kind(shorts(0, 0), null, shorts(0), marker),
            new Kind(shorts(0, 1), null, shorts(0), marker),
            new Kind(shorts(0, 2), null, new byte[0], LeaderChangeMessage.SCHEMA_0),
            new Kind(shorts(0, 2), null, new byte[0], LeaderChangeMessage.SCHEMA_1),
            new Kind(shorts(0, 3), null, new byte[0], SnapshotHeaderRecord.SCHEMA_0),
            new Kind(shorts(0, 4), null, new byte[0], SnapshotFooterRecord.SCHEMA_0),
            new Kind(shorts(0, 5), null, new byte[0], KRaftVersionRecord.SCHEMA_0),
            new Kind(shorts(0, 6), null, new byte[0], VotersRecord.SCHEMA_0),
            new Kind(shorts(0, 7), null, new byte[0], SnapshotFooterRecord.SCHEMA_0));
    }

    private static List<Kind> coordinated(int type, Object key, Object value) throws ReflectiveOperationException {
        Schema keySchema = schemas(key)[0];
        Schema[] versions = schemas(value);
        List<Kind> kinds = new ArrayList<>();
        for (int version = 0; version < versions.length; version++) {
            kinds.add(new Kind(shorts(type), keySchema, shorts(version), versions[version]));
        }
        return kinds;
    }

    private static List<Kind> framed(int type, Object message) throws ReflectiveOperationException {
        Schema[] versions = schemas(message);
        List<Kind> kinds = new ArrayList<>();
        for (int version = 0; version < versions.length; version++) {
            kinds.add(new Kind(null, null, new byte[] {1, (byte) type, (byte) version}, versions[version]));
        }
        return kinds;
    }

    private static Schema[] schemas(Object message) throws ReflectiveOperationException {
        return (Schema[]) message.getClass().getField("SCHEMAS").get(null);
    }

    private static byte[] shorts(int... values) {
        ByteBuffer buffer = ByteBuffer.allocate(Short.BYTES * values.length);
        for (int value : values) {
            buffer.putShort((short) value);
        }
        return buffer.array();
    }

    // ---- Descriptions -----------------------------------------------------------------------------------------------

    private void printAll(String decoder, String parserClass, List<Kind> kinds, int count) throws Exception {
        Constructor<?> constructor =
            Class.forName("org.apache.kafka.tools.DumpLogSegments$" + parserClass).getDeclaredConstructor();
        constructor.setAccessible(true);
        Object parser = constructor.newInstance();
        Method parse = parser.getClass().getMethod("parse", Record.class);
        parse.setAccessible(true);
        for (Kind kind : kinds) {
            for (int i = 0; i < 2 * count; i++) {
                boolean damaged = i >= count;
                byte[] key = kind.key == null ? null : filled(kind.keyPrefix, kind.key);
                byte[] value = filled(kind.valuePrefix, kind.value);
                if (damaged && key != null && random.nextInt(4) == 0) {
                    key = damage(key);
                } else if (damaged) {
                    value = damage(value);
                }
                Record record = record(random.nextInt(1000), key, value);
                print(decoder, record, key, value, parsed(parser, parse, record));
            }
        }
    }

    private void printControlRecords(List<Kind> kinds, int count) throws Exception {
        Method print = Class.forName("org.apache.kafka.tools.DumpLogSegments")
            .getDeclaredMethod("printControlRecord", Record.class);
        print.setAccessible(true);
        for (Kind kind : kinds) {
            for (int i = 0; i < 2 * count; i++) {
                byte[] key = kind.keyPrefix;
                byte[] value = filled(kind.valuePrefix, kind.value);
                if (i >= count && random.nextInt(4) == 0) {
                    key = damage(key);
                } else if (i >= count) {
                    value = damage(value);
                }
                Record record = record(random.nextInt(1000), key, value);
                print("control", record, key, value, new String[] {null, printed(print, record)});
            }
        }
    }

    private static String[] parsed(Object parser, Method parse, Record record) throws ReflectiveOperationException {
        Object result;
        try {
            result = parse.invoke(parser, record);
        } catch (InvocationTargetException failure) {
            return null;
        }
        return new String[] {part(result, "key"), part(result, "value")};
    }

    private static String part(Object result, String name) throws ReflectiveOperationException {
        Method accessor = result.getClass().getDeclaredMethod(name);
        accessor.setAccessible(true);
        return (String) ((Optional<?>) accessor.invoke(result)).orElse(null);
    }

    private static String printed(Method print, Record record) throws ReflectiveOperationException {
        ByteArrayOutputStream caught = new ByteArrayOutputStream();
        PrintStream before = System.out;
        System.setOut(new PrintStream(caught, true, StandardCharsets.UTF_8));
        try {
            print.invoke(null, record);
        } catch (InvocationTargetException failure) {
            return null;
        } finally {
            System.setOut(before);
        }
        return caught.toString(StandardCharsets.UTF_8);
    }

    private static Record record(long offset, byte[] key, byte[] value) {
        return MemoryRecords.withRecords(offset, Compression.NONE, new SimpleRecord(0, key, value))
            .records().iterator().next();
    }

    private void print(String decoder, Record record, byte[] key, byte[] value, String[] texts) {
        boolean gaveUp = texts == null || decoder.equals("control") && texts[1] == null;
        out.println(String.join("\t", decoder, Long.toString(record.offset()), hex(key), hex(value),
            gaveUp ? "!" : hex(texts[0]), gaveUp ? "!" : hex(texts[1])));
    }

    private static String hex(String text) {
        return hex(text == null ? null : text.getBytes(StandardCharsets.UTF_8));
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? "-" : "x" + HexFormat.of().formatHex(bytes);
    }

    // ---- Damage ----------------------------------------------------------------------------------------------------

    private byte[] damage(byte[] valid) {
        switch (random.nextInt(8)) {
            case 0:
                return null;
            case 1:
                return Arrays.copyOf(valid, valid.length + 1 + random.nextInt(3));
            case 2:
                byte[] noise = new byte[random.nextInt(12)];
                random.nextBytes(noise);
                return noise;
            case 3:
            case 4:
                return Arrays.copyOf(valid, random.nextInt(valid.length + 1));
            default:
                byte[] changed = valid.clone();
                for (int i = random.nextInt(2); i >= 0; i--) {
                    // Most errors are in the first bytes.
                    int reach = random.nextBoolean() ? Math.min(8, changed.length) : changed.length;
                    changed[random.nextInt(reach)] = (byte) (random.nextBoolean() ? random.nextInt(4) : random.nextInt());
                }
                return changed;
        }
    }

    // ---- Random values ---------------------------------------------------------------------------------------------

    private byte[] filled(byte[] prefix, Schema schema) {
        ByteBuffer buffer = ByteBuffer.allocate(LARGEST_RECORD);
        buffer.put(prefix);
        write(buffer, schema, "");
        return Arrays.copyOf(buffer.array(), buffer.position());
    }

    private void write(ByteBuffer buffer, Type type, String name) {
        if (type.isNullable() && random.nextInt(4) == 0) {
            type.write(buffer, null);
        } else if (type instanceof TaggedFields) {
            writeTagged(buffer, ((TaggedFields) type).fields());
        } else if (type instanceof Schema) {
            if (type.isNullable()) {
                buffer.put((byte) 1);
            }
            for (BoundField field : ((Schema) type).fields()) {
                write(buffer, field.def.type, field.def.name);
            }
        } else if (type.isArray()) {
            int size = random.nextInt(MEMBERS_OF_AN_ARRAY);
            if (type.toString().startsWith("COMPACT")) {
                ByteUtils.writeUnsignedVarint(size + 1, buffer);
            } else {
                buffer.putInt(size);
            }
            for (int i = 0; i < size; i++) {
                write(buffer, type.arrayElementType().orElseThrow(), name);
            }
        } else {
            type.write(buffer, scalar(type, name));
        }
    }

    private void writeTagged(ByteBuffer buffer, Map<Integer, Field> known) {
        List<Integer> tags = new ArrayList<>(known.keySet());
        tags.removeIf(tag -> random.nextBoolean());
        if (random.nextInt(8) == 0) {
            tags.add(100 + random.nextInt(1000));
        }
        ByteUtils.writeUnsignedVarint(tags.size(), buffer);
        for (int tag : tags) {
            ByteUtils.writeUnsignedVarint(tag, buffer);
            ByteBuffer content = ByteBuffer.allocate(LARGEST_RECORD / 4);
            if (known.containsKey(tag)) {
                write(content, known.get(tag).type, known.get(tag).name);
            } else {
                content.put((byte) 1).put((byte) 2);
            }
            ByteUtils.writeUnsignedVarint(content.position(), buffer);
            buffer.put(content.flip());
        }
    }

    private Object scalar(Type type, String name) {
        switch (name) {
            case "protocol_type":
                return random.nextInt(4) == 0 ? text() : "consumer";
            case "remote_log_segment_state":
            case "remote_partition_delete_state":
                return (byte) random.nextInt(4);
            case "start_offset":
                return (long) random.nextInt(1000);
            case "end_offset":
                return (long) (1000 + random.nextInt(1000));
            default:
                return scalar(type.toString(), name);
        }
    }

    private Object scalar(String typeName, String name) {
        switch (typeName.replace("COMPACT_", "").replace("NULLABLE_", "")) {
            case "BOOLEAN":
                return random.nextBoolean();
            case "INT8":
                return (byte) integer();
            case "INT16":
                return (short) integer();
            case "UINT16":
                return (int) integer() & 0xffff;
            case "INT32":
                return (int) integer();
            case "INT64":
                return integer();
            case "FLOAT64":
                // All versions of Java print eighths alike; other doubles differ.
                return random.nextInt(1 << 24) / (random.nextBoolean() ? 1.0 : 8.0);
            case "UUID":
                return new org.apache.kafka.common.Uuid(integer(), integer());
            case "STRING":
                return text();
            case "BYTES":
                return bytes(name);
            default:
                throw new IllegalArgumentException(typeName);
        }
    }

    private Object bytes(String name) {
        byte[] content = switch (name) {
            case "subscription" -> consumerProtocol(ConsumerProtocolSubscription.SCHEMAS);
            case "assignment" -> consumerProtocol(ConsumerProtocolAssignment.SCHEMAS);
            default -> new byte[random.nextInt(5)];
        };
        // Type.BYTES and Type.COMPACT_BYTES are written from a buffer.
        return ByteBuffer.wrap(content);
    }

    private byte[] consumerProtocol(Schema[] versions) {
        int version = random.nextInt(versions.length);
        byte[] content = filled(shorts(version), versions[version]);
        return random.nextInt(4) == 0 ? Optional.ofNullable(damage(content)).orElse(new byte[0]) : content;
    }

    private long integer() {
        switch (random.nextInt(4)) {
            case 0:
                return random.nextInt(3) - 1;
            case 1:
                return random.nextLong();
            default:
                return random.nextInt(100_000);
        }
    }

    private String text() {
        StringBuilder text = new StringBuilder();
        for (int i = random.nextInt(6); i > 0; i--) {
            text.append(LETTERS.charAt(random.nextInt(LETTERS.length())));
        }
        return text.toString();
    }
}
