import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import java.util.TreeMap;

import org.apache.kafka.coordinator.transaction.TransactionLog;
import org.apache.kafka.coordinator.transaction.TransactionMetadata;
import org.apache.kafka.server.common.TransactionVersion;

/**
 * Loads logs of {@code __transaction_state} with Kafka's {@code TransactionLog}, as a coordinator does.
 *
 * <p>A request is a line of keys and values in turn, in base64 and separated by tabs; "-" is null. The answer has a
 * line for each transactional id: the id in base64, a tab, and its fields. {@code ignored} says how many records have
 * an unknown version, and {@code failed} which record ends the loading, counted from 0. An empty line ends it.
 *
 * <p>A request of {@code complete}, a key and a value is answered with the {@code value} that completes the
 * transaction, in base64, as a coordinator writes it.
 */
public final class TransactionLogServer {
    private TransactionLogServer() { }

    public static void main(String[] unused) throws IOException {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] words = line.isEmpty() ? new String[0] : line.split("\t");
            if (words.length > 0 && words[0].equals("complete")) {
                complete(decoded(words[1]), decoded(words[2]), answers);
            } else {
                load(words, answers);
            }
            answers.println();
            answers.flush();
        }
    }

    private static void load(String[] words, PrintStream answers) {
        Map<String, TransactionMetadata> loaded = new TreeMap<>();
        int ignored = 0;
        for (int at = 0; at < words.length; at += 2) {
            try {
                ByteBuffer key = decoded(words[at]);
                if (key == null) {
                    throw new IllegalArgumentException("no key");
                }
                TransactionLog.ReadResult result = TransactionLog.read(key, decoded(words[at + 1]));
                if (result instanceof TransactionLog.TxnRecord record) {
                    loaded.put(record.transactionId(), record.metadata());
                } else if (result instanceof TransactionLog.TxnTombstone tombstone) {
                    loaded.remove(tombstone.transactionId());
                } else {
                    ignored++;
                }
            } catch (RuntimeException failure) {
                answers.println("failed\t" + at / 2);
                break;
            }
        }
        answers.println("ignored\t" + ignored);
        loaded.forEach((id, found) -> answers.println(encoded(id) + "\t" + fields(found)));
    }

    private static void complete(ByteBuffer key, ByteBuffer value, PrintStream answers) {
        TransactionVersion written = value.getShort(0) == 0 ? TransactionVersion.TV_0 : TransactionVersion.TV_2;
        TransactionMetadata found = ((TransactionLog.TxnRecord) TransactionLog.read(key, value)).metadata();
        byte[] completed = TransactionLog.valueToBytes(
            found.prepareComplete(found.txnLastUpdateTimestamp()), written);
        answers.println("value\t" + Base64.getEncoder().encodeToString(completed));
    }

    private static String fields(TransactionMetadata found) {
        StringBuilder fields = new StringBuilder();
        for (Object field : new Object[] {found.producerId(), found.producerEpoch(), found.prevProducerId(),
            found.state().stateName(), found.txnTimeoutMs(), found.txnStartTimestamp(),
            found.txnLastUpdateTimestamp(), found.clientTransactionVersion().featureLevel()}) {
            fields.append(field).append(' ');
        }
        found.topicPartitions().forEach(each ->
            fields.append(encoded(each.topic())).append(':').append(each.partition()).append(' '));
        return fields.toString().trim();
    }

    private static ByteBuffer decoded(String word) {
        return word.equals("-") ? null : ByteBuffer.wrap(Base64.getDecoder().decode(word));
    }

    private static String encoded(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
