import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.TreeMap;
import java.util.stream.Collectors;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
// Exit is in utils up to 4.3, and in utils.internals since 4.4.
import org.apache.kafka.common.utils.*;
import org.apache.kafka.common.utils.internals.*;
import org.apache.kafka.tools.TransactionsCommand;

/** What a broker and the official tool say of transactions; requests of {@link BrokerHost}. */
final class TransactionQuestions {
    private final Map<String, Object> address;
    private final Exit.Procedure exit;
    private final List<String> said = new ArrayList<>();

    private TransactionQuestions(Map<String, Object> address, Exit.Procedure exit) {
        this.address = address;
        this.exit = exit;
    }

    /** Answers one question, whose words follow its name; {@code exit} is what stands for an exit of the JVM. */
    static List<String> answer(
        List<String> words, Map<String, Object> address, Map<String, KafkaProducer<byte[], byte[]>> producers,
        Exit.Procedure exit
    ) throws Exception {
        TransactionQuestions questions = new TransactionQuestions(address, exit);
        switch (words.get(0)) {
            case "coordinators" -> questions.describeTransactions(words.subList(1, words.size()));
            case "partitions" -> questions.describePartitions();
            case "tool" -> questions.runTool(words.subList(1, words.size()));
            case "offset" -> producers.get(words.get(1)).sendOffsetsToTransaction(
                Map.of(new TopicPartition(words.get(3), 0), new OffsetAndMetadata(Long.parseLong(words.get(4)))),
                new ConsumerGroupMetadata(words.get(2)));
            default -> throw new IllegalArgumentException(words.get(0));
        }
        return questions.said;
    }

    private void say(Object name, Object... what) {
        said.add(name + "\t" + Arrays.stream(what).map(String::valueOf).collect(Collectors.joining("\t")));
    }

    /**
     * Says of each transactional id what its coordinator knows. Until a coordinator has loaded its log, it lists
     * nothing: so one id of each is described first, which waits.
     */
    private void describeTransactions(List<String> ofEach) throws Exception {
        try (Admin admin = Admin.create(address)) {
            admin.describeTransactions(ofEach).all().get();
            List<String> ids = admin.listTransactions().all().get().stream()
                .map(TransactionListing::transactionalId).toList();
            for (Map.Entry<String, TransactionDescription> each :
                    admin.describeTransactions(ids).all().get().entrySet()) {
                TransactionDescription found = each.getValue();
                OptionalLong start = found.transactionStartTimeMs();
                say(each.getKey(), found.state(), found.producerId(), found.producerEpoch(),
                    found.transactionTimeoutMs(), start.isPresent() ? start.getAsLong() : "-",
                    found.topicPartitions().stream().map(TopicPartition::toString).sorted()
                        .collect(Collectors.joining(",")));
            }
        }
    }

    /** Says of each partition its last stable offset, then the open transactions. */
    private void describePartitions() throws Exception {
        try (Admin admin = Admin.create(address)) {
            var names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
            Map<TopicPartition, OffsetSpec> latest = new TreeMap<>(
                (a, b) -> a.toString().compareTo(b.toString()));
            for (TopicDescription topic : admin.describeTopics(names).allTopicNames().get().values()) {
                topic.partitions().forEach(each ->
                    latest.put(new TopicPartition(topic.name(), each.partition()), OffsetSpec.latest()));
            }
            var stable = admin.listOffsets(latest, new ListOffsetsOptions(IsolationLevel.READ_COMMITTED)).all().get();
            var producers = admin.describeProducers(latest.keySet()).all().get();
            for (TopicPartition partition : latest.keySet()) {
                List<Object> open = new ArrayList<>();
                open.add(stable.get(partition).offset());
                for (ProducerState each : producers.get(partition).activeProducers()) {
                    if (each.currentTransactionStartOffset().isPresent()) {
                        open.add(each.currentTransactionStartOffset().getAsLong() + " " + each.producerId() + " "
                            + each.producerEpoch() + " " + each.coordinatorEpoch().orElse(-1) + " "
                            + each.lastTimestamp());
                    }
                }
                say(partition, open.toArray());
            }
        }
    }

    /** Runs {@code kafka-transactions.sh} with these arguments, and says the lines that it prints. */
    private void runTool(List<String> arguments) throws Exception {
        List<String> all = new ArrayList<>(List.of("--bootstrap-server", (String) address.get("bootstrap.servers")));
        all.addAll(arguments);
        PrintStream before = System.out;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        Exit.setExitProcedure((status, message) -> {
            throw new Ended(status, message);
        });
        try {
            System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
            TransactionsCommand.main(all.toArray(String[]::new));
        } catch (Ended ended) {
            if (ended.status != 0) {
                throw new IllegalStateException(ended.getMessage());
            }
        } finally {
            System.setOut(before);
            Exit.setExitProcedure(exit);
        }
        int number = 0;
        for (String line : printed.toString(StandardCharsets.UTF_8).split("\n")) {
            say(number++, line.strip());
        }
    }

    /** Stands for the end of the tool's process. */
    private static final class Ended extends RuntimeException {
        private static final long serialVersionUID = 1;
        private final int status;

        Ended(int status, String message) {
            super(message);
            this.status = status;
        }
    }
}
