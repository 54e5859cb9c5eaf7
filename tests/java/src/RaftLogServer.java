import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.raft.MetadataLogConfig;
import org.apache.kafka.raft.ValidOffsetAndEpoch;
import org.apache.kafka.raft.internals.KafkaRaftLog;
import org.apache.kafka.server.common.OffsetAndEpoch;

/**
 * Lets Kafka's own log of the cluster's metadata truncate as the follower of another one.
 *
 * <p>A request is a line of two fields, separated by a tab: the directories {@code __cluster_metadata-0} of the
 * follower and of the leader. Both are changed. The answer is two lines and an empty one: {@code end} and the
 * follower's log end offset before it appends, or {@code fails}, and {@code started over} and whether it fetches a
 * snapshot, after a tab.
 */
public final class RaftLogServer {
    private static final int MOST_ROUNDS = 1000;

    private RaftLogServer() { }

    public static void main(String[] args) throws Exception {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String request = requests.readLine(); request != null; request = requests.readLine()) {
            String[] fields = request.split("\t", -1);
            String end;
            boolean[] isStartedOver = new boolean[1];
            try {
                end = String.valueOf(follow(open(fields[0]), open(fields[1]), isStartedOver));
            } catch (RuntimeException failure) {
                end = "fails";
            }
            answers.println("end\t" + end);
            answers.println("started over\t" + isStartedOver[0]);
            answers.println();
        }
        System.exit(0);
    }

    private static KafkaRaftLog open(String directory) throws Exception {
        MetadataLogConfig config =
            new MetadataLogConfig(new AbstractConfig(MetadataLogConfig.CONFIG_DEF, Map.of(), false));
        return KafkaRaftLog.createLog(new TopicPartition("__cluster_metadata", 0), Uuid.METADATA_TOPIC_ID,
            new File(directory), Time.SYSTEM, new LoaderServer.AtOnce(), config, 1);
    }

    private static long follow(KafkaRaftLog follower, KafkaRaftLog leader, boolean[] isStartedOver) {
        try {
            leader.initializeLeaderEpoch(Math.max(follower.lastFetchedEpoch(), leader.lastFetchedEpoch()) + 1);
            for (int round = 0; round < MOST_ROUNDS; round++) {
                ValidOffsetAndEpoch answer =
                    leader.validateOffsetAndEpoch(follower.endOffset().offset(), follower.lastFetchedEpoch());
                OffsetAndEpoch found = answer.offsetAndEpoch();
                switch (answer.kind()) {
                    case VALID:
                        return follower.endOffset().offset();
                    case SNAPSHOT:
                        isStartedOver[0] = true;
                        return found.offset();
                    default:
                        follower.truncateToEndOffset(found);
                }
            }
            throw new IllegalStateException("the follower never fits");
        } finally {
            follower.close();
            leader.close();
        }
    }
}
