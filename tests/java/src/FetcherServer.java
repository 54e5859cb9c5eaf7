import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

import kafka.server.AbstractFetcherThread;
import kafka.server.FailedPartitions;
import kafka.server.InitialFetchState;
import kafka.server.OffsetTruncationState;
import kafka.server.TierStateMachine;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.message.OffsetForLeaderEpochRequestData.OffsetForLeaderPartition;
import org.apache.kafka.common.message.OffsetForLeaderEpochResponseData.EpochEndOffset;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.FetchRequest;
import org.apache.kafka.server.LeaderEndPoint;
import org.apache.kafka.server.PartitionFetchState;
import org.apache.kafka.server.ReplicaFetch;
import org.apache.kafka.server.ResultWithPartitions;
import org.apache.kafka.server.common.OffsetAndEpoch;
import org.apache.kafka.server.network.BrokerEndPoint;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Lets Kafka's own fetcher of a follower truncate, up to its first fetch that the leader answers with records.
 *
 * <p>A request is a line of six fields, separated by tabs: of the follower its leader epochs as {@code EPOCH:OFFSET},
 * separated by blanks, its log start offset, log end offset and high watermark as numbers separated by blanks, and the
 * same of the leader. The answer is two lines and an empty one: {@code end} and the follower's log end offset
 * after truncation, and {@code started over} and whether everything was deleted, after a tab.
 */
public final class FetcherServer {
    private static final TopicPartition PARTITION = new TopicPartition("topic", 0);
    private static final Uuid TOPIC_ID = new Uuid(1, 2);
    private static final BrokerEndPoint LEADER = new BrokerEndPoint(1, "localhost", 1);
    private static final int MOST_ROUNDS = 1000;

    private FetcherServer() { }

    /** The bounds of a log, and its leader epochs. */
    private static final class Replica {
        final LeaderEpochFileCache epochs;
        long start;
        long end;
        boolean startedOver;

        Replica(File directory) throws IOException {
            directory.mkdirs();
            File path = LeaderEpochCheckpointFile.newFile(directory);
            LeaderEpochCheckpointFile file = new LeaderEpochCheckpointFile(path, new LogDirFailureChannel(1));
            epochs = new LeaderEpochFileCache(PARTITION, file, new LoaderServer.AtOnce());
        }

        /** Takes the fields of a request; gives the high watermark. */
        long become(String entries, String bounds) {
            epochs.clearAndFlush();
            startedOver = false;
            for (String entry : entries.isEmpty() ? new String[0] : entries.split(" ")) {
                String[] parts = entry.split(":");
                epochs.assign(Integer.parseInt(parts[0]), Long.parseLong(parts[1]));
            }
            String[] numbers = bounds.split(" ");
            start = Long.parseLong(numbers[0]);
            end = Long.parseLong(numbers[1]);
            return Long.parseLong(numbers[2]);
        }

        Optional<OffsetAndEpoch> endOfEpoch(int epoch) {
            Map.Entry<Integer, Long> found = epochs.endOffsetFor(epoch, end);
            return found.getValue() < 0
                ? Optional.empty() : Optional.of(new OffsetAndEpoch(found.getValue(), found.getKey()));
        }

        void truncateTo(long offset) {
            end = Math.min(end, offset);
            start = Math.min(start, end);
            epochs.truncateFromEndAsyncFlush(end);
        }

        void truncateFullyAndStartAt(long offset) {
            startedOver = true;
            start = offset;
            end = offset;
            epochs.clearAndFlush();
        }
    }

    /** Answers fetches as the leader's broker does. */
    private static final class Leader implements LeaderEndPoint {
        final Replica log;

        Leader(Replica log) {
            this.log = log;
        }

        @Override
        public boolean isTruncationOnFetchSupported() {
            return true;
        }

        @Override
        public void initiateClose() { }

        @Override
        public void close() { }

        @Override
        public BrokerEndPoint brokerEndPoint() {
            return LEADER;
        }

        @Override
        public Map<TopicPartition, FetchResponseData.PartitionData> fetch(FetchRequest.Builder request) {
            FetchRequest.PartitionData asked = request.fetchData().get(PARTITION);
            FetchResponseData.PartitionData answer = new FetchResponseData.PartitionData();
            boolean isOutOfRange = asked.fetchOffset < log.start;
            if (asked.lastFetchedEpoch.isPresent()) {
                int epoch = asked.lastFetchedEpoch.get();
                Optional<OffsetAndEpoch> end = log.endOfEpoch(epoch);
                if (end.isEmpty()) {
                    isOutOfRange = true;
                } else if (end.get().epoch() < epoch || end.get().offset() < asked.fetchOffset) {
                    answer.divergingEpoch().setEpoch(end.get().epoch()).setEndOffset(end.get().offset());
                }
            } else {
                isOutOfRange |= asked.fetchOffset > log.end;
            }
            if (isOutOfRange) {
                answer = new FetchResponseData.PartitionData().setErrorCode(Errors.OFFSET_OUT_OF_RANGE.code());
            }
            return Map.of(PARTITION, answer);
        }

        @Override
        public OffsetAndEpoch fetchEarliestOffset(TopicPartition partition, int epoch) {
            return new OffsetAndEpoch(log.start, epoch);
        }

        @Override
        public OffsetAndEpoch fetchLatestOffset(TopicPartition partition, int epoch) {
            return new OffsetAndEpoch(log.end, epoch);
        }

        @Override
        public Map<TopicPartition, EpochEndOffset> fetchEpochEndOffsets(
                Map<TopicPartition, OffsetForLeaderPartition> asked) {
            throw new UnsupportedOperationException("truncation is on fetch");
        }

        @Override
        public OffsetAndEpoch fetchEarliestLocalOffset(TopicPartition partition, int epoch) {
            throw new UnsupportedOperationException("nothing is tiered");
        }

        @Override
        public OffsetAndEpoch fetchEarliestPendingUploadOffset(TopicPartition partition, int epoch) {
            throw new UnsupportedOperationException("nothing is tiered");
        }

        @Override
        public ResultWithPartitions<Optional<ReplicaFetch>> buildFetch(
                Map<TopicPartition, PartitionFetchState> states) {
            Map<TopicPartition, FetchRequest.PartitionData> asked = new HashMap<>();
            states.forEach((partition, state) -> {
                if (state.isReadyForFetch()) {
                    asked.put(partition, new FetchRequest.PartitionData(TOPIC_ID, state.fetchOffset(), 0, 1 << 20,
                        Optional.of(state.currentLeaderEpoch()), state.lastFetchedEpoch()));
                }
            });
            FetchRequest.Builder request = FetchRequest.Builder.forReplica((short) 17, 2, 1, 0, 0, asked);
            return new ResultWithPartitions<>(Optional.of(new ReplicaFetch(asked, request)), Set.of());
        }
    }

    /** The follower. */
    private static final class Fetcher extends AbstractFetcherThread {
        private final Replica log;
        private boolean isDone;

        Fetcher(Leader leader, Replica log) {
            super("fetcher", "fetcher", leader, new FailedPartitions(), new TierStateMachine(leader, null, false), 0,
                false, new BrokerTopicStats());
            this.log = log;
        }

        void run(int leaderEpoch, long highWatermark) {
            long offset = log.epochs.latestEpoch().isPresent() ? log.end : highWatermark;
            InitialFetchState state = new InitialFetchState(Option.apply(TOPIC_ID), LEADER, leaderEpoch, offset);
            addPartitions(CollectionConverters.asScala(Map.of(PARTITION, state)));
            for (int round = 0; !isDone; round++) {
                if (round == MOST_ROUNDS) {
                    throw new IllegalStateException("the fetcher does not get on");
                }
                doWork();
            }
            fetcherStats().unregister();
            fetcherLagStats().unregister();
        }

        @Override
        public Option<LogAppendInfo> processPartitionData(TopicPartition partition, long offset, int leaderEpoch,
                FetchResponseData.PartitionData data) {
            if (offset != log.end) {
                throw new IllegalStateException("fetched from " + offset + ", but the log ends at " + log.end);
            }
            isDone = true;
            return Option.empty();
        }

        @Override
        public void truncate(TopicPartition partition, OffsetTruncationState state) {
            log.truncateTo(state.offset());
        }

        @Override
        public void truncateFullyAndStartAt(TopicPartition partition, long offset) {
            log.truncateFullyAndStartAt(offset);
        }

        @Override
        public Optional<Integer> latestEpoch(TopicPartition partition) {
            return log.epochs.latestEpoch();
        }

        @Override
        public long logStartOffset(TopicPartition partition) {
            return log.start;
        }

        @Override
        public long logEndOffset(TopicPartition partition) {
            return log.end;
        }

        @Override
        public Optional<OffsetAndEpoch> endOffsetForEpoch(TopicPartition partition, int epoch) {
            return log.endOfEpoch(epoch);
        }

        @Override
        public boolean shouldFetchFromLastTieredOffset(TopicPartition partition, long leaderEnd, long replicaEnd) {
            return false;
        }
    }

    public static void main(String[] unused) throws IOException {
        PrintStream answers = System.out;
        System.setOut(System.err);
        File directory = Files.createTempDirectory("fetcher").toFile();
        Replica follower = new Replica(new File(directory, "follower"));
        Replica leader = new Replica(new File(directory, "leader"));
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] fields = line.split("\t", -1);
            long highWatermark = follower.become(fields[0], fields[1]);
            leader.become(fields[2], fields[3]);
            int leaderEpoch = 1 + Math.max(follower.epochs.latestEpoch().orElse(-1),
                leader.epochs.latestEpoch().orElse(-1));
            leader.epochs.assign(leaderEpoch, leader.end);
            new Fetcher(new Leader(leader), follower).run(leaderEpoch, highWatermark);
            answers.println("end\t" + follower.end);
            answers.println("started over\t" + follower.startedOver);
            answers.println();
            answers.flush();
        }
    }
}
