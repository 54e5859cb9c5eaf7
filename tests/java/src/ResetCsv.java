import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;

import com.fasterxml.jackson.databind.ObjectReader;

import org.apache.kafka.tools.consumer.group.CsvUtils;

/**
 * Reads a file as {@code kafka-consumer-groups --reset-offsets --from-file} does, and prints each line's group (where
 * it has one), topic, partition and offset, separated by tabs; text in base64.
 *
 * <p>{@code java ResetCsv FILE (true|false)}: whether lines begin with a group.
 */
public final class ResetCsv {
    private ResetCsv() {
    }

    public static void main(String[] args) throws IOException {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        String content = Files.readString(Path.of(args[0]));
        boolean hasGroups = Boolean.parseBoolean(args[1]);
        ObjectReader reader = CsvUtils.readerFor(
            hasGroups ? CsvUtils.CsvRecordWithGroup.class : CsvUtils.CsvRecordNoGroup.class);
        for (String line : content.split("\n")) {
            if (hasGroups) {
                CsvUtils.CsvRecordWithGroup found = reader.readValue(line, CsvUtils.CsvRecordWithGroup.class);
                answers.println(String.join("\t", encoded(found.getGroup()), encoded(found.getTopic()),
                    String.valueOf(found.getPartition()), String.valueOf(found.getOffset())));
            } else {
                CsvUtils.CsvRecordNoGroup found = reader.readValue(line, CsvUtils.CsvRecordNoGroup.class);
                answers.println(String.join("\t", encoded(found.getTopic()),
                    String.valueOf(found.getPartition()), String.valueOf(found.getOffset())));
            }
        }
    }

    private static String encoded(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
