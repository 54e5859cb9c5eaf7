import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;

import com.yammer.metrics.core.Gauge;
import com.yammer.metrics.core.Metric;
import com.yammer.metrics.core.MetricName;

import kafka.server.BrokerServer;
import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
// Exit is in utils up to 4.3, and in utils.internals since 4.4.
import org.apache.kafka.common.utils.*;
import org.apache.kafka.common.utils.internals.*;
import org.apache.kafka.server.metrics.KafkaYammerMetrics;
import org.apache.kafka.storage.internals.log.UnifiedLog;

import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Runs brokers, one at a time in one JVM, and clients that connect to the broker's listener.
 *
 * <p>The system property {@code address} is the address of the listener, {@code patience} the timeout of clients in
 * seconds. A request is a line on standard input with fields separated by tabs; keys and values are in base64, "-" is
 * null. An answer is lines of a name, a tab and a text, and an empty line at the end. If a request fails, the only name
 * is "failed".
 *
 * <p>Clients write and read partition 0 only. A producer stays open from {@code open} to the end, also while brokers
 * are replaced.
 */
public final class BrokerHost {
    private static final Duration PATIENCE = Duration.ofSeconds(Integer.getInteger("patience", 60));
    private static final long GLANCE_MS = 20;
    private static final int NODE = 1;

    private final Map<String, Object> address;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final List<String> said = new ArrayList<>();
    private KafkaRaftServer broker;
    private volatile String ended;
    private volatile Thread starting;

    private BrokerHost(String address) {
        this.address = Map.of("bootstrap.servers", address);
    }

    public static void main(String[] unused) throws IOException {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BrokerHost host = new BrokerHost(System.getProperty("address"));
        Exit.setExitProcedure(host::end);
        Exit.setHaltProcedure(host::end);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            host.answer(List.of(line.split("\t", -1))).forEach(answers::println);
            answers.println();
            answers.flush();
        }
        host.producers.values().forEach(producer -> producer.close(Duration.ZERO));
        host.answer(List.of("stop"));
        System.exit(0);
    }

    private List<String> answer(List<String> words) {
        said.clear();
        try {
            perform(words.get(0), words.subList(1, words.size()));
        } catch (Throwable failure) {
            Thread.interrupted();
            failure.printStackTrace();
            return List.of("failed\t" + failure.toString().replaceAll("\\s+", " "));
        }
        return said;
    }

    private void perform(String request, List<String> words) throws Exception {
        switch (request) {
            case "start" -> start(words);
            case "stop" -> stop();
            case "create" -> create(words.get(0), words.subList(1, words.size()));
            case "open" -> open(words.get(0), words.subList(1, words.size()));
            case "begin" -> producers.get(words.get(0)).beginTransaction();
            case "commit" -> producers.get(words.get(0)).commitTransaction();
            case "abort" -> producers.get(words.get(0)).abortTransaction();
            case "send" -> send(words);
            case "read" -> read(new TopicPartition(words.get(0), 0));
            case "producers" -> describeProducers(new TopicPartition(words.get(0), 0));
            case "clean" -> awaitCleaner();
            case "dirs" -> describeLogDirs();
            case "logs" -> describeLogs();
            case "offline" -> awaitOffline(words.get(0));
            case "end" -> awaitEnd();
            case "configure" -> configure(words.get(0), words.subList(1, words.size()));
            case "retain" -> retain();
            case "transactions" ->
                said.addAll(TransactionQuestions.answer(words, address, producers, this::end));
            default -> throw new IllegalArgumentException(request);
        }
    }

    private void say(Object name, Object... what) {
        said.add(name + "\t" + String.join("\t", Arrays.stream(what).map(String::valueOf).toList()));
    }

    // ---- The broker ------------------------------------------------------------------------------------------------

    /** Starts a broker; returns when it is registered and unfenced. */
    private void start(List<String> properties) {
        Properties all = new Properties();
        all.putAll(parsed(properties));
        ended = null;
        broker = new KafkaRaftServer(KafkaConfig.fromProps(all, false), Time.SYSTEM);
        starting = Thread.currentThread();
        try {
            broker.startup();
        } finally {
            starting = null;
        }
        requireAlive();
    }

    /** Replaces the exit of the process: a start ends, and later requests to a broker that has ended fail. */
    private void end(int status, String message) {
        ended = "the broker has ended its process with status " + status;
        Thread waiting = starting;
        if (waiting != null && waiting != Thread.currentThread()) {
            waiting.interrupt();
        }
        throw new IllegalStateException(ended);
    }

    private void requireAlive() {
        if (ended != null) {
            throw new IllegalStateException(ended);
        }
    }

    /** Shuts the broker down as SIGTERM does. */
    private void stop() {
        if (broker != null) {
            broker.shutdown();
            broker.awaitShutdown();
            broker = null;
        }
    }

    /**
     * Waits until the cleaner has checked all logs once more from the beginning, and prints its maximum dirty percentage.
     */
    private void awaitCleaner() throws InterruptedException {
        long asked = System.currentTimeMillis();
        long first = awaitRound(asked);
        awaitRound(first);
        say("max-dirty-percent", gauge("max-dirty-percent"));
    }

    /** Sets the dynamic configuration of a broker, or of all brokers if the name is empty. */
    private void configure(String name, List<String> properties) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.BROKER, name);
        List<AlterConfigOp> changes = new ArrayList<>();
        parsed(properties).forEach((key, value) ->
            changes.add(new AlterConfigOp(new ConfigEntry(key, String.valueOf(value)), AlterConfigOp.OpType.SET)));
        try (Admin admin = Admin.create(address)) {
            admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
        }
    }

    /** Prints the log start offset and the log end offset of each log, by its directory. */
    private void describeLogs() throws Exception {
        for (UnifiedLog log : logs()) {
            say(log.dir(), log.logStartOffset(), log.logEndOffset());
        }
    }

    private List<UnifiedLog> logs() throws ReflectiveOperationException {
        Field field = KafkaRaftServer.class.getDeclaredField("broker");
        field.setAccessible(true);
        BrokerServer server = (BrokerServer) ((Option<?>) field.get(broker)).get();
        Object all = server.logManager().allLogs();
        // A collection of Scala up to 4.3, and of Java since 4.4.
        Iterable<?> found = all instanceof Iterable<?> java
            ? java
            : CollectionConverters.asJava((scala.collection.Iterable<?>) all);
        List<UnifiedLog> logs = new ArrayList<>();
        found.forEach(log -> logs.add((UnifiedLog) log));
        return logs;
    }

    /** Applies retention to all logs, and prints how many segments of each were deleted. */
    private void retain() throws Exception {
        for (UnifiedLog log : logs()) {
            if (!log.isFuture()) {
                say(log.topicPartition(), log.deleteOldSegments());
            }
        }
    }

    private long awaitRound(long after) throws InterruptedException {
        for (long deadline = System.currentTimeMillis() + PATIENCE.toMillis(); System.currentTimeMillis() < deadline;) {
            long began = System.currentTimeMillis() - gauge("time-since-last-run-ms");
            if (began > after + GLANCE_MS) {
                return began;
            }
            Thread.sleep(GLANCE_MS);
        }
        throw new IllegalStateException("the cleaner makes no progress");
    }

    private static long gauge(String name) {
        for (Map.Entry<MetricName, Metric> metric : KafkaYammerMetrics.defaultRegistry().allMetrics().entrySet()) {
            if (metric.getKey().getType().equals("LogCleanerManager") && metric.getKey().getName().equals(name)) {
                return ((Number) ((Gauge<?>) metric.getValue()).value()).longValue();
            }
        }
        throw new IllegalStateException("there is no cleaner");
    }

    /** Prints for each log directory the partitions that are served from it, or its error. */
    private void describeLogDirs() throws Exception {
        try (Admin admin = Admin.create(address)) {
            for (Map.Entry<String, LogDirDescription> each : admin.describeLogDirs(List.of(NODE)).descriptions()
                    .get(NODE).get().entrySet()) {
                Object error = each.getValue().error();
                say(each.getKey(), error != null ? error : each.getValue().replicaInfos().keySet());
            }
        }
    }

    /** Waits until a log directory is offline, or the broker has ended for this reason. */
    private void awaitOffline(String path) throws Exception {
        for (long deadline = System.currentTimeMillis() + PATIENCE.toMillis(); System.currentTimeMillis() < deadline;) {
            requireAlive();
            describeLogDirs();
            if (said.stream().noneMatch(line -> line.startsWith(path + "\t["))) {
                return;
            }
            said.clear();
            Thread.sleep(GLANCE_MS);
        }
        throw new IllegalStateException("it is still served");
    }

    /** Waits for the broker to end; returns normally if it is still running after the timeout. */
    private void awaitEnd() throws InterruptedException {
        for (long deadline = System.currentTimeMillis() + PATIENCE.toMillis(); System.currentTimeMillis() < deadline;) {
            requireAlive();
            Thread.sleep(GLANCE_MS);
        }
    }

    // ---- Clients ---------------------------------------------------------------------------------------------------

    private void create(String topic, List<String> properties) throws Exception {
        Map<String, String> configs = new HashMap<>();
        parsed(properties).forEach((name, value) -> configs.put(name, (String) value));
        try (Admin admin = Admin.create(address)) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1).configs(configs))).all().get();
        }
    }

    private void open(String name, List<String> properties) {
        Map<String, Object> all = parsed(properties);
        all.putAll(address);
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
        producers.put(name, producer);
        if (all.containsKey("transactional.id")) {
            producer.initTransactions();
        }
    }

    /** Sends keys and values to a topic, all with the same timestamp; returns when all are acknowledged. */
    private void send(List<String> words) throws Exception {
        KafkaProducer<byte[], byte[]> producer = producers.get(words.get(0));
        String topic = words.get(1);
        long timestampMs = Long.parseLong(words.get(2));
        List<Future<?>> sent = new ArrayList<>();
        for (int i = 3; i < words.size(); i += 2) {
            sent.add(producer.send(
                new ProducerRecord<>(topic, 0, timestampMs, decoded(words.get(i)), decoded(words.get(i + 1)))));
        }
        producer.flush();
        for (Future<?> each : sent) {
            each.get();
        }
    }

    /** Prints key and value of each offset, the log start offset and the consumer's end offset. */
    private void read(TopicPartition partition) {
        Map<String, Object> all = new HashMap<>(address);
        all.put("isolation.level", "read_committed");
        all.put("auto.offset.reset", "none");
        all.put("default.api.timeout.ms", (int) PATIENCE.toMillis());
        all.put("enable.auto.commit", false);
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            long start = consumer.beginningOffsets(List.of(partition)).get(partition);
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            say("start", start);
            say("end", end);
            consumer.assign(List.of(partition));
            consumer.seek(partition, start);
            long deadline = System.currentTimeMillis() + PATIENCE.toMillis();
            while (consumer.position(partition) < end) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("the consumer makes no progress at " + consumer.position(partition));
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    say(record.offset(), encoded(record.key()), encoded(record.value()));
                }
            }
        }
    }

    /** Prints epoch and last sequence number of each producer. */
    private void describeProducers(TopicPartition partition) throws Exception {
        try (Admin admin = Admin.create(address)) {
            for (ProducerState state : admin.describeProducers(List.of(partition)).partitionResult(partition).get()
                    .activeProducers()) {
                say(state.producerId(), state.producerEpoch(), state.lastSequence());
            }
        }
    }

    // ---- Requests and answers --------------------------------------------------------------------------------------

    private static Map<String, Object> parsed(List<String> properties) {
        Map<String, Object> all = new HashMap<>();
        for (String property : properties) {
            int equals = property.indexOf('=');
            all.put(property.substring(0, equals), property.substring(equals + 1));
        }
        return all;
    }

    private static byte[] decoded(String word) {
        return word.equals("-") ? null : Base64.getDecoder().decode(word);
    }

    private static String encoded(byte[] content) {
        return content == null ? "-" : Base64.getEncoder().encodeToString(content);
    }
}
