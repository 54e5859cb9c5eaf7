import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import kafka.server.ControllerServer;
import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import kafka.tools.StorageTool;

// Exit is in utils up to 4.3, and in utils.internals since 4.4.
import org.apache.kafka.common.utils.*;
import org.apache.kafka.common.utils.internals.*;
import org.apache.kafka.raft.KafkaRaftClient;
import org.apache.kafka.tools.GetOffsetShell;
import org.apache.kafka.tools.LeaderElectionCommand;
import org.apache.kafka.tools.MetadataQuorumCommand;
import org.apache.kafka.tools.TopicCommand;
import org.apache.kafka.tools.TransactionsCommand;
import org.apache.kafka.tools.consumer.ConsoleConsumer;
import org.apache.kafka.tools.consumer.group.ConsumerGroupCommand;

import scala.Option;

/**
 * Runs nodes of a cluster, any number in one JVM, or clients of a cluster.
 *
 * <p>A request is a line of JSON on standard input, an answer a line of JSON. {@code do} names the request; {@link
 * ClusterClients} has those of clients. If one fails, the answer is {@code {"failed": "…"}}. The system property
 * {@code patience} is the timeout in seconds. When standard input ends, so does the JVM, without stopping its nodes.
 */
public final class ClusterHost {
    static final long PATIENCE_MS = 1000L * Integer.getInteger("patience", 60);
    private static final int SUCCESSOR_MS = 200;
    private static final long GLANCE_MS = 20;
    static final ObjectMapper JSON = new ObjectMapper();

    private final Map<Integer, KafkaRaftServer> nodes = new TreeMap<>();
    private final ClusterClients clients = new ClusterClients();
    private final List<String> ends = new ArrayList<>();
    private final List<Integer> statuses = new ArrayList<>();

    private ClusterHost() {
    }

    public static void main(String[] unused) throws IOException {
        PrintStream answers = System.out;
        System.setOut(System.err);
        ClusterHost host = new ClusterHost();
        Exit.setExitProcedure(host::end);
        Exit.setHaltProcedure(host::end);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(JSON.writeValueAsString(host.answer(JSON.readTree(line))));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private Object answer(JsonNode request) {
        try {
            return switch (request.get("do").textValue()) {
                case "format" -> format(words(request.get("args")));
                case "start" -> start(request.get("nodes"));
                case "stop" -> stop(request.get("nodes"));
                case "tool" -> run(request.get("name").textValue(), words(request.get("args")));
                default -> clients.answer(request);
            };
        } catch (Throwable failure) {
            failure.printStackTrace();
            Throwable cause = failure instanceof ExecutionException ? failure.getCause() : failure;
            return Map.of("failed", String.valueOf(cause));
        }
    }

    static List<String> words(JsonNode array) {
        List<String> found = new ArrayList<>();
        array.forEach(each -> found.add(each.textValue()));
        return found;
    }

    /** Replaces the exit of the process, which a node or a tool asks for. */
    private void end(int status, String message) {
        synchronized (ends) {
            ends.add("status " + status + (message == null ? "" : ": " + message));
            statuses.add(status);
        }
        throw new Ended(status, message);
    }

    // ---- Nodes -----------------------------------------------------------------------------------------------------

    /** Runs {@code kafka-storage.sh format} with these arguments. */
    private Object format(List<String> args) {
        List<String> all = new ArrayList<>(List.of("format"));
        all.addAll(args);
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        int status = StorageTool.execute(all.toArray(String[]::new), new PrintStream(printed, true));
        if (status != 0) {
            throw new IllegalStateException("status " + status + ": " + printed);
        }
        return printed.toString(StandardCharsets.UTF_8);
    }

    /**
     * Starts nodes, all at once, by their files of properties. A broker has started when it is unfenced. Returns the
     * reasons of those that failed.
     */
    private Object start(JsonNode files) throws Exception {
        Map<Integer, Callable<KafkaRaftServer>> starts = new TreeMap<>();
        files.properties().forEach(each -> starts.put(Integer.valueOf(each.getKey()), () -> {
            KafkaConfig config = KafkaConfig.fromProps(Utils.loadProps(each.getValue().textValue()), false);
            KafkaRaftServer node = new KafkaRaftServer(config, Time.SYSTEM);
            synchronized (nodes) {
                nodes.put(Integer.valueOf(each.getKey()), node);
            }
            node.startup();
            return node;
        }));
        return failures(starts);
    }

    /** Shuts nodes down as SIGTERM does, all at once. Returns the reasons of those that failed. */
    private Object stop(JsonNode ids) throws Exception {
        boolean isNoneLeft;
        synchronized (nodes) {
            isNoneLeft = nodes.size() == ids.size();
        }
        Map<Integer, Callable<Void>> stops = new TreeMap<>();
        ids.forEach(each -> stops.put(each.intValue(), () -> {
            KafkaRaftServer node;
            synchronized (nodes) {
                node = nodes.remove(each.intValue());
            }
            if (node != null) {
                if (isNoneLeft) {
                    expectNoSuccessor(node);
                }
                node.shutdown();
                node.awaitShutdown();
            }
            return null;
        }));
        return failures(stops);
    }

    /**
     * Lets a controller that is about to shut down wait briefly for another to be elected. A leader waits five seconds
     * ({@code KafkaRaftClientDriver}): in vain if all controllers stop.
     */
    private static void expectNoSuccessor(KafkaRaftServer node) throws ReflectiveOperationException {
        Option<?> controller = (Option<?>) field(KafkaRaftServer.class, "controller").get(node);
        var quorum = controller.isEmpty() ? null : ((ControllerServer) controller.get()).sharedServer().raftManager();
        if (quorum == null) {
            return;
        }
        AtomicReference<?> begun = (AtomicReference<?>) field(KafkaRaftClient.class, "shutdown").get(quorum.client());
        Thread waiting = new Thread(() -> {
            try {
                while (begun.get() == null) {
                    Thread.sleep(GLANCE_MS);
                }
            } catch (InterruptedException ended) {
                return;
            }
            quorum.client().shutdown(SUCCESSOR_MS);
        });
        waiting.setDaemon(true);
        waiting.start();
    }

    private static Field field(Class<?> type, String name) throws ReflectiveOperationException {
        Field field = type.getDeclaredField(name);
        field.setAccessible(true);
        return field;
    }

    private Map<Integer, String> failures(Map<Integer, ? extends Callable<?>> actions) throws Exception {
        ExecutorService workers = Executors.newCachedThreadPool(action -> {
            Thread thread = new Thread(action);
            thread.setDaemon(true);
            return thread;
        });
        Map<Integer, Future<?>> running = new TreeMap<>();
        actions.forEach((id, action) -> running.put(id, workers.submit(action)));
        Map<Integer, String> failed = new TreeMap<>();
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        for (Map.Entry<Integer, Future<?>> each : running.entrySet()) {
            try {
                each.getValue().get(Math.max(1, deadline - System.currentTimeMillis()), TimeUnit.MILLISECONDS);
            } catch (Exception failure) {
                failure.printStackTrace();
                Throwable cause = failure.getCause() == null ? failure : failure.getCause();
                String ended;
                synchronized (ends) {
                    ended = ends.isEmpty() ? "" : " (" + String.join("; ", ends) + ")";
                }
                failed.put(each.getKey(), cause + ended);
            }
        }
        workers.shutdown();
        return failed;
    }

    // ---- Kafka's tools ---------------------------------------------------------------------------------------------

    /**
     * Runs an official tool in this JVM; returns the lines that it prints, and its exit status. Some tools catch what
     * stands for their end, and ask for another: the first counts.
     */
    private Object run(String name, List<String> args) throws Exception {
        PrintStream before = System.out;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        statuses.clear();
        try {
            System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
            String[] all = args.toArray(String[]::new);
            switch (name) {
                case "kafka-consumer-groups.sh" -> ConsumerGroupCommand.main(all);
                case "kafka-metadata-quorum.sh" -> MetadataQuorumCommand.main(all);
                case "kafka-topics.sh" -> TopicCommand.main(all);
                case "kafka-leader-election.sh" -> LeaderElectionCommand.main(all);
                case "kafka-console-consumer.sh" -> ConsoleConsumer.main(all);
                case "kafka-get-offsets.sh" -> GetOffsetShell.main(all);
                case "kafka-transactions.sh" -> TransactionsCommand.main(all);
                default -> throw new IllegalArgumentException(name);
            }
        } catch (Ended ended) {
            System.err.println(ended.getMessage());
        } finally {
            System.setOut(before);
        }
        Map<String, Object> answer = new HashMap<>();
        answer.put("status", statuses.isEmpty() ? 0 : statuses.get(0));
        answer.put("lines", printed.toString(StandardCharsets.UTF_8).lines().toList());
        return answer;
    }

    /** Stands for the end of the process. */
    private static final class Ended extends RuntimeException {
        private static final long serialVersionUID = 1;

        Ended(int status, String message) {
            super("ended with status " + status + ": " + message);
        }
    }
}
