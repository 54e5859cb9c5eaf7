import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.KRaftVersionRecord;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.message.SnapshotFooterRecord;
import org.apache.kafka.common.message.SnapshotHeaderRecord;
import org.apache.kafka.common.message.VotersRecord;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.CompletedTxn;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerAppendInfo;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;

/**
 * Writes partitions of one segment each with Kafka's own classes: every codec and magic, transactions, control records,
 * headers, binary payloads, extreme sizes, and compacted logs.
 *
 * <p>{@code java SegmentWriter DIRECTORY SEED COUNT [KIND]} writes {@code DIRECTORY/KIND-NUMBER/} for the numbers 0 to
 * COUNT - 1, alternating between the kinds, and prints their names. A partition depends only on seed and number.
 */
public final class SegmentWriter {
    private static final long EPOCH_MS = 1_767_225_600_000L;
    private static final byte V0 = RecordBatch.MAGIC_VALUE_V0;
    private static final byte V1 = RecordBatch.MAGIC_VALUE_V1;
    private static final byte V2 = RecordBatch.MAGIC_VALUE_V2;

    private SegmentWriter() { }

    /** Writes one partition directory. */
    private interface Kind {
        void write(File directory, Random random) throws IOException;
    }

    private static final Map<String, Kind> KINDS = new LinkedHashMap<>();

    static {
        KINDS.put("plain", SegmentWriter::plain);
        KINDS.put("transactions", SegmentWriter::transactions);
        KINDS.put("magic-0", (directory, random) -> legacy(directory, random, V0));
        KINDS.put("magic-1", (directory, random) -> legacy(directory, random, V1));
        KINDS.put("mixed-magics", SegmentWriter::mixedMagics);
        KINDS.put("control", SegmentWriter::control);
        KINDS.put("compacted", SegmentWriter::compacted);
        KINDS.put("timestamps", SegmentWriter::timestamps);
        KINDS.put("no-text", SegmentWriter::noText);
        KINDS.put("far-offsets", SegmentWriter::farOffsets);
        KINDS.put("checkpoint", SegmentWriter::checkpoint);
        KINDS.put("sequences", SegmentWriter::sequences);
        KINDS.put("one-each", SegmentWriter::oneRecordBatches);
        KINDS.put("padded", SegmentWriter::padded);
        KINDS.put("large", SegmentWriter::large);
    }

    public static void main(String[] args) throws IOException {
        Path root = Path.of(args[0]);
        long seed = Long.parseLong(args[1]);
        int count = Integer.parseInt(args[2]);
        List<String> kinds = args.length > 3 ? List.of(args[3]) : List.copyOf(KINDS.keySet());
        for (int number = 0; number < count; number++) {
            String kind = kinds.get(number % kinds.size());
            Path directory = root.resolve(kind + "-" + number);
            Files.createDirectories(directory);
            KINDS.get(kind).write(directory.toFile(), new Random(seed * 1_000_003L + number));
            System.out.println(directory.getFileName());
        }
    }

    // ---- Kinds -----------------------------------------------------------------------------------------------------

    private static void plain(File directory, Random random) throws IOException {
        try (Partition partition = new Partition(directory, random, random.nextBoolean() ? 0 : random.nextInt(1 << 20))) {
            int batches = 1 + random.nextInt(30);
            for (int i = 0; i < batches; i++) {
                partition.data(1 + random.nextInt(20), 200);
            }
        }
    }

    private static void transactions(File directory, Random random) throws IOException {
        try (Partition partition = new Partition(directory, random, random.nextInt(1000))) {
            Producer[] producers = new Producer[1 + random.nextInt(4)];
            for (int i = 0; i < producers.length; i++) {
                producers[i] = new Producer(random.nextInt(100_000), (short) random.nextInt(5), 0);
            }
            for (int i = 0; i < 40; i++) {
                Producer producer = producers[random.nextInt(producers.length)];
                switch (random.nextInt(4)) {
                    case 0 -> partition.marker(producer, random.nextBoolean());
                    case 1 -> partition.data(1 + random.nextInt(5), 60);
                    default -> partition.data(producer, true, 1 + random.nextInt(6), 80);
                }
            }
        }
    }

    private static void legacy(File directory, Random random, byte magic) throws IOException {
        try (Partition partition = new Partition(directory, random, random.nextBoolean() ? 0 : random.nextInt(100_000))) {
            for (int i = 0; i < 15; i++) {
                partition.messageSet(magic, 1 + random.nextInt(12), random.nextInt(4) == 0);
            }
        }
    }

    private static void mixedMagics(File directory, Random random) throws IOException {
        try (Partition partition = new Partition(directory, random, random.nextInt(100))) {
            for (byte magic = V0; magic <= V1; magic++) {
                for (int i = 0; i < 5; i++) {
                    partition.messageSet(magic, 1 + random.nextInt(6), false);
                }
            }
            for (int i = 0; i < 8; i++) {
                partition.data(1 + random.nextInt(10), 100);
            }
            partition.messageSet(V1, 3, true);
        }
    }

    private static void control(File directory, Random random) throws IOException {
        try (Partition partition = new Partition(directory, random, 0)) {
            for (int i = 0; i < 12; i++) {
                if (random.nextInt(3) == 0) {
                    partition.data(1 + random.nextInt(3), 50);
                } else {
                    partition.append(controlBatch(random.nextInt(8), partition.nextOffset, partition.leaderEpoch, random));
                }
            }
        }
    }

    /** Writes a compacted log: gaps within and between batches, empty batches, delete horizons, tombstones. */
    private static void compacted(File directory, Random random) throws IOException {
        try (Partition partition = new Partition(directory, random, random.nextInt(1000))) {
            for (int i = 0; i < 25; i++) {
                partition.nextOffset += random.nextInt(3) == 0 ? random.nextInt(5000) : 0;
                Producer producer = new Producer(random.nextInt(50), (short) 0, random.nextInt(1000));
                if (random.nextInt(4) == 0) {
                    partition.emptyBatch(producer, 1 + random.nextInt(50));
                } else {
                    partition.gappedBatch(1 + random.nextInt(8), 1 + random.nextInt(300));
                }
            }
        }
    }

    private static void timestamps(File directory, Random random) throws IOException {
        try (Partition partition = new Partition(directory, random, 0)) {
            for (int i = 0; i < 20; i++) {
                switch (random.nextInt(5)) {
                    case 0 -> partition.nowMs = RecordBatch.NO_TIMESTAMP;
                    case 1 -> partition.nowMs = 0;
                    case 2 -> partition.nowMs = Long.MAX_VALUE - random.nextInt(1 << 20);
                    case 3 -> partition.nowMs = 1L << random.nextInt(62);
                    default -> partition.nowMs = EPOCH_MS;
                }
                partition.logAppendTime = random.nextInt(3) == 0;
                partition.data(1 + random.nextInt(4), 30);
            }
        }
    }

    /** Writes keys, values and header keys with invalid UTF-8 or terminal control characters. */
    private static void noText(File directory, Random random) throws IOException {
        try (Partition partition = new Partition(directory, random, 0)) {
            partition.payloads = Payloads.NO_TEXT;
            for (int i = 0; i < 25; i++) {
                partition.data(1 + random.nextInt(10), 60);
            }
        }
    }

    private static void farOffsets(File directory, Random random) throws IOException {
        long base = random.nextBoolean() ? Long.MAX_VALUE - (5L << 31) : (1L << (32 + random.nextInt(30))) + 7;
        try (Partition partition = new Partition(directory, random, base)) {
            for (int i = 0; i < 10; i++) {
                partition.gappedBatch(1 + random.nextInt(5), 1 + random.nextInt(40_000_000));
                partition.data(1 + random.nextInt(3), 40);
            }
        }
    }

    private static void checkpoint(File directory, Random random) throws IOException {
        long end = random.nextInt(1_000_000);
        String name = random.nextInt(3) == 0
            ? "bootstrap.checkpoint"
            : String.format("%020d-%010d.checkpoint", end, random.nextInt(100));
        try (FileChannel file = FileChannel.open(directory.toPath().resolve(name), StandardOpenOption.CREATE_NEW,
                StandardOpenOption.WRITE)) {
            long offset = 0;
            int[] types = {3, 5, 6, -1, -1, -1, 4};
            for (int type : types) {
                MemoryRecords records = type < 0
                    ? new BatchBuilder(random, V2, Compression.NONE).build(offset, 1 + random.nextInt(20), 90)
                    : controlBatch(type, offset, 0, random);
                file.write(records.buffer());
                offset = records.lastBatch().orElseThrow().lastOffset() + 1;
            }
        }
    }

    /** Writes sequence numbers up to 2^31 - 1, after which they wrap to 0. */
    private static void sequences(File directory, Random random) throws IOException {
        try (Partition partition = new Partition(directory, random, 0)) {
            Producer[] producers = {
                new Producer(Long.MAX_VALUE, Short.MAX_VALUE, Integer.MAX_VALUE - 3),
                new Producer(0, (short) 0, Integer.MAX_VALUE),
                new Producer(1L << 40, (short) 1, Integer.MAX_VALUE - random.nextInt(50)),
            };
            for (int i = 0; i < 20; i++) {
                partition.data(producers[i % producers.length], false, 1 + random.nextInt(9), 20);
            }
        }
    }

    private static void oneRecordBatches(File directory, Random random) throws IOException {
        try (Partition partition = new Partition(directory, random, 0)) {
            for (int i = 0; i < 120; i++) {
                partition.data(1, 40);
            }
        }
    }

    /** Writes the files of a killed broker: index files at their full size, sometimes the log file, too. */
    private static void padded(File directory, Random random) throws IOException {
        boolean preallocated = random.nextInt(3) == 0;
        Partition partition = new Partition(directory, random, random.nextInt(2) * 500L, preallocated ? 65_536 : 0);
        int batches = random.nextInt(12);
        for (int i = 0; i < batches; i++) {
            partition.data(1 + random.nextInt(8), 80);
        }
        partition.abandon();
    }

    private static void large(File directory, Random random) throws IOException {
        try (Partition partition = new Partition(directory, random, 0)) {
            partition.payloads = Payloads.LETTERS;
            partition.data(5_000, 10);
            partition.data(3, 1_300_000);
            partition.data(2_000, 100);
            partition.payloads = Payloads.ANY;
            partition.data(1, 200_000);
        }
    }

    // ---- Control records -------------------------------------------------------------------------------------------

    /** Makes a batch with one control record of the given type. */
    private static MemoryRecords controlBatch(int type, long offset, int leaderEpoch, Random random) throws IOException {
        ByteBuffer buffer = ByteBuffer.allocate(2048);
        long nowMs = EPOCH_MS + random.nextInt(1_000_000);
        return switch (type) {
            case 0, 1 -> MemoryRecords.withEndTransactionMarker(offset, nowMs, leaderEpoch, random.nextInt(1000),
                (short) random.nextInt(10),
                new EndTransactionMarker(ControlRecordType.fromTypeId((short) type), random.nextInt()));
            case 2 -> MemoryRecords.withLeaderChangeMessage(offset, nowMs, leaderEpoch, buffer, leaderChange(random));
            case 3 -> MemoryRecords.withSnapshotHeaderRecord(offset, nowMs, leaderEpoch, buffer,
                new SnapshotHeaderRecord().setVersion((short) 0).setLastContainedLogTimestamp(nowMs - random.nextInt(999)));
            case 4 -> MemoryRecords.withSnapshotFooterRecord(offset, nowMs, leaderEpoch, buffer,
                new SnapshotFooterRecord().setVersion((short) 0));
            case 5 -> MemoryRecords.withKRaftVersionRecord(offset, nowMs, leaderEpoch, buffer,
                new KRaftVersionRecord().setVersion((short) 0).setKRaftVersion((short) random.nextInt(3)));
            case 6 -> MemoryRecords.withVotersRecord(offset, nowMs, leaderEpoch, buffer, voters(random));
            default -> controlBatchOfTheFuture(type, offset, nowMs, leaderEpoch, random);
        };
    }

    /** Makes a batch of two control records of a type that Kafka 4.3.1 does not know. */
    private static MemoryRecords controlBatchOfTheFuture(int type, long offset, long nowMs, int leaderEpoch, Random random)
            throws IOException {
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(new ByteBufferOutputStream(256), V2, Compression.NONE,
            TimestampType.CREATE_TIME, offset, nowMs, RecordBatch.NO_PRODUCER_ID, RecordBatch.NO_PRODUCER_EPOCH,
            RecordBatch.NO_SEQUENCE, false, true, leaderEpoch, Integer.MAX_VALUE);
        for (int i = 0; i < 2; i++) {
            byte[] key = {0, (byte) random.nextInt(3), 0, (byte) type};
            builder.appendUncheckedWithOffset(offset + i, new SimpleRecord(nowMs, key, new byte[random.nextInt(9)]));
        }
        return builder.build();
    }

    private static LeaderChangeMessage leaderChange(Random random) {
        LeaderChangeMessage message =
            new LeaderChangeMessage().setVersion((short) random.nextInt(2)).setLeaderId(random.nextInt(10) - 1);
        for (int i = random.nextInt(4); i > 0; i--) {
            LeaderChangeMessage.Voter voter = new LeaderChangeMessage.Voter().setVoterId(random.nextInt(5));
            message.voters().add(voter);
            if (random.nextBoolean()) {
                message.grantingVoters().add(voter.duplicate());
            }
        }
        return message;
    }

    private static VotersRecord voters(Random random) {
        VotersRecord record = new VotersRecord().setVersion((short) 0);
        for (int i = random.nextInt(4); i > 0; i--) {
            VotersRecord.Voter voter = new VotersRecord.Voter()
                .setVoterId(random.nextInt(9))
                .setVoterDirectoryId(new Uuid(random.nextLong(), random.nextLong()))
                .setKRaftVersionFeature(new VotersRecord.KRaftVersionFeature().setMaxSupportedVersion((short) 1));
            voter.endpoints().add(new VotersRecord.Endpoint()
                .setName("CONTROLLER \"" + i + "\"")
                .setHost("h\u00f6st-" + i + ".example")
                .setPort(random.nextInt(65_536)));
            record.voters().add(voter);
        }
        return record;
    }

    // ---- Batches ---------------------------------------------------------------------------------------------------

    /** A producer and its next sequence number. */
    private static final class Producer {
        static final Producer NONE =
            new Producer(RecordBatch.NO_PRODUCER_ID, RecordBatch.NO_PRODUCER_EPOCH, RecordBatch.NO_SEQUENCE);

        final long id;
        short epoch;
        int sequence;

        Producer(long id, short epoch, int sequence) {
            this.id = id;
            this.epoch = epoch;
            this.sequence = sequence;
        }

        void sent(int records) {
            if (this != NONE) {
                sequence = DefaultRecordBatch.incrementSequence(sequence, records);
            }
        }
    }

    /** Builds batches and message sets of random records. */
    private static final class BatchBuilder {
        final Random random;
        final byte magic;
        final Compression compression;
        TimestampType timestampType;
        Payloads payloads = Payloads.ANY;
        Producer producer = Producer.NONE;
        boolean transactional;
        int leaderEpoch;
        int greatestGap = 1;
        long nowMs = EPOCH_MS;
        long deleteHorizonMs = RecordBatch.NO_TIMESTAMP;

        BatchBuilder(Random random, byte magic, Compression compression) {
            this.random = random;
            this.magic = magic;
            this.compression = compression;
            this.timestampType = magic == V0 ? TimestampType.NO_TIMESTAMP_TYPE : TimestampType.CREATE_TIME;
        }

        MemoryRecords build(long baseOffset, int records, int valueBytes) {
            ByteBufferOutputStream stream = new ByteBufferOutputStream(records * Math.min(valueBytes, 1000) + 512);
            MemoryRecordsBuilder builder = new MemoryRecordsBuilder(stream, magic, compression, timestampType, baseOffset,
                nowMs, producer.id, producer.epoch, producer.sequence, transactional, false, leaderEpoch,
                Integer.MAX_VALUE, deleteHorizonMs);
            long offset = baseOffset;
            for (int i = 0; i < records; i++) {
                offset += greatestGap > 1 ? random.nextInt(greatestGap) : 0;
                builder.appendWithOffset(offset, timestamp(), payloads.next(random, 24), payloads.next(random, valueBytes),
                    headers());
                offset++;
            }
            if (magic == V2 && greatestGap > 1 && random.nextBoolean()) {
                builder.overrideLastOffset(offset + random.nextInt(greatestGap));
            }
            return builder.build();
        }

        private long timestamp() {
            if (magic == V0) {
                return RecordBatch.NO_TIMESTAMP;
            }
            long jitter = random.nextInt(5000) - 1000;
            return nowMs < 0 || nowMs + jitter < 0 ? nowMs : nowMs + jitter;
        }

        private Header[] headers() {
            if (magic != V2 || random.nextInt(3) != 0) {
                return new Header[0];
            }
            Header[] headers = new Header[random.nextInt(4)];
            for (int i = 0; i < headers.length; i++) {
                String key = switch (random.nextInt(6)) {
                    case 0 -> "";
                    case 1 -> "schl\u00fcssel-\u4e2d\u6587-\ud83d\ude00";
                    case 2 -> "a,b";
                    default -> "header-" + random.nextInt(10);
                };
                headers[i] = new RecordHeader(key, payloads.next(random, 30));
            }
            return headers;
        }
    }

    /** Chooses a codec that the magic allows, and one of its levels. */
    private static Compression codec(Random random, byte magic) {
        return switch (random.nextInt(magic == V2 ? 6 : 5)) {
            case 1 -> Compression.gzip().level(random.nextInt(3) == 0 ? -1 : 1 + random.nextInt(9)).build();
            case 2 -> Compression.snappy().build();
            case 3 -> Compression.lz4().level(1 + random.nextInt(17)).build();
            case 5 -> Compression.zstd().level(random.nextInt(24) - 5).build();
            default -> Compression.NONE;
        };
    }

    /** Generators of keys, values and header values; about one in eight is null, one in eight empty. */
    private enum Payloads {
        LETTERS, ANY, NO_TEXT;

        /** Byte sequences that Java's UTF-8 decoder replaces in different ways. */
        private static final String[] MALFORMED = {
            "eda080", "edbfbf78", "f09f", "f09f98", "e282", "c080", "c1bf", "e08080", "f4908080", "f888808080", "80", "bf80",
            "fffe", "e241", "f09f4180", "efbbbf", "f0808080", "e0a0", "eda0",
        };

        byte[] next(Random random, int sizeBytes) {
            int choice = random.nextInt(8);
            if (this != LETTERS && choice == 0) {
                return null;
            }
            if (this != LETTERS && choice == 1) {
                return new byte[0];
            }
            int size = sizeBytes > 1000 ? sizeBytes : 1 + random.nextInt(sizeBytes);
            return this == NO_TEXT ? noText(random, size) : text(random, size);
        }

        private byte[] text(Random random, int size) {
            byte[] letters = new byte[size];
            for (int i = 0; i < size; i++) {
                letters[i] = (byte) ('a' + random.nextInt(26));
            }
            return switch (this == LETTERS ? 9 : random.nextInt(10)) {
                case 0 -> "Gr\u00fc\u00dfe, \u4e16\u754c \ud83c\udf0d".getBytes(StandardCharsets.UTF_8);
                case 1 -> ("{\"id\":" + random.nextInt() + ",\"name\":\"n " + size + "\"}").getBytes(StandardCharsets.UTF_8);
                case 2 -> "two\nlines\ttab \u0000 \u001b[31m".getBytes(StandardCharsets.UTF_8);
                case 3 -> noText(random, size);
                default -> letters;
            };
        }

        private static byte[] noText(Random random, int size) {
            byte[] bytes = new byte[size];
            random.nextBytes(bytes);
            if (random.nextBoolean()) {
                Arrays.fill(bytes, (byte) 'z');
                byte[] malformed = HexFormat.of().parseHex(MALFORMED[random.nextInt(MALFORMED.length)]);
                int at = random.nextInt(size);
                System.arraycopy(malformed, 0, bytes, at, Math.min(malformed.length, size - at));
            }
            return bytes;
        }
    }

    // ---- A partition of one segment --------------------------------------------------------------------------------

    /** A segment with its indexes, transaction index and producer state, as the broker's own classes write them. */
    private static final class Partition implements AutoCloseable {
        private final Random random;
        private final LogSegment segment;
        private final ProducerStateManager producers;
        long nextOffset;
        long nowMs = EPOCH_MS;
        int leaderEpoch;
        boolean logAppendTime;
        Payloads payloads = Payloads.ANY;

        Partition(File directory, Random random, long baseOffset) throws IOException {
            this(directory, random, baseOffset, 0);
        }

        Partition(File directory, Random random, long baseOffset, int preallocatedBytes) throws IOException {
            this.random = random;
            this.nextOffset = baseOffset;
            LogConfig config = new LogConfig(Map.of(
                "index.interval.bytes", Integer.toString(100 + random.nextInt(1500)),
                "segment.index.bytes", "65536"));
            this.segment = LogSegment.open(directory, baseOffset, config, Time.SYSTEM, preallocatedBytes,
                preallocatedBytes > 0);
            this.producers = new ProducerStateManager(new TopicPartition("any", 0), directory, 900_000,
                new ProducerStateManagerConfig(Integer.MAX_VALUE, false), Time.SYSTEM);
        }

        void data(int records, int valueBytes) throws IOException {
            data(Producer.NONE, false, records, valueBytes);
        }

        void data(Producer producer, boolean transactional, int records, int valueBytes) throws IOException {
            BatchBuilder batch = batch(V2);
            batch.producer = producer;
            batch.transactional = transactional;
            append(batch.build(nextOffset, records, valueBytes));
            producer.sent(records);
        }

        void marker(Producer producer, boolean commit) throws IOException {
            ControlRecordType type = commit ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
            append(MemoryRecords.withEndTransactionMarker(nextOffset, nowMs, leaderEpoch, producer.id, producer.epoch,
                new EndTransactionMarker(type, random.nextInt(20))));
            if (random.nextInt(4) == 0) {
                producer.epoch++;
                producer.sequence = 0;
            }
        }

        void messageSet(byte magic, int records, boolean gaps) throws IOException {
            BatchBuilder set = batch(magic);
            set.greatestGap = gaps ? 20 : 1;
            append(set.build(nextOffset, records, 120));
        }

        void gappedBatch(int records, int greatestGap) throws IOException {
            BatchBuilder batch = batch(V2);
            batch.greatestGap = greatestGap;
            batch.deleteHorizonMs = random.nextInt(3) == 0 ? EPOCH_MS + random.nextInt(1 << 30) : RecordBatch.NO_TIMESTAMP;
            append(batch.build(nextOffset, records, 60));
        }

        void emptyBatch(Producer producer, int offsets) throws IOException {
            ByteBuffer header = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
            DefaultRecordBatch.writeEmptyHeader(header, V2, producer.id, producer.epoch, producer.sequence, nextOffset,
                nextOffset + offsets - 1, leaderEpoch, TimestampType.CREATE_TIME, nowMs, producer.id % 2 == 0,
                random.nextInt(3) == 0);
            header.flip();
            append(MemoryRecords.readableRecords(header));
        }

        private BatchBuilder batch(byte magic) {
            if (random.nextInt(10) == 0) {
                leaderEpoch += 1 + random.nextInt(3);
            }
            if (nowMs == EPOCH_MS || nowMs > EPOCH_MS && nowMs < EPOCH_MS * 2) {
                nowMs += random.nextInt(60_000) - 5_000;
            }
            BatchBuilder batch = new BatchBuilder(random, magic, codec(random, magic));
            if (magic != V0 && (logAppendTime || random.nextInt(6) == 0)) {
                batch.timestampType = TimestampType.LOG_APPEND_TIME;
            }
            batch.payloads = payloads;
            batch.leaderEpoch = leaderEpoch;
            batch.nowMs = nowMs;
            return batch;
        }

        void append(MemoryRecords records) throws IOException {
            long lastOffset = nextOffset;
            for (RecordBatch batch : records.batches()) {
                lastOffset = batch.lastOffset();
                updateProducers(batch);
            }
            segment.append(lastOffset, records);
            nextOffset = lastOffset + 1;
        }

        private void updateProducers(RecordBatch batch) throws IOException {
            if (batch.hasProducerId()) {
                ProducerAppendInfo update = producers.prepareUpdate(batch.producerId(), AppendOrigin.REPLICATION);
                Optional<CompletedTxn> completed = update.append(batch, Optional.empty());
                producers.update(update);
                if (completed.isPresent()) {
                    segment.updateTxnIndex(completed.get(), producers.lastStableOffset(completed.get()));
                    producers.completeTxn(completed.get());
                }
            }
            producers.updateMapEndOffset(batch.lastOffset() + 1);
        }

        /** Closes the files as a broker does at a clean shutdown. */
        @Override
        public void close() throws IOException {
            segment.onBecomeInactiveSegment();
            segment.close();
            producers.takeSnapshot();
        }

        /** Leaves the files as a killed broker does after the system has flushed them. */
        void abandon() throws IOException {
            segment.offsetIndex();
            segment.timeIndex();
            segment.flush();
        }
    }
}
