import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.tools.DumpLogSegments;

/**
 * Runs {@code kafka-dump-log} any number of times in one JVM, so that a test session starts only one.
 *
 * <p>A request on standard input is the number of arguments and the arguments. An answer on standard output is the
 * tool's standard output, its standard error, and its end: empty if it returned, else its exception or
 * {@code exit STATUS}. Numbers are four bytes, big-endian; a text is its length and its UTF-8 bytes. Relative file names
 * are relative to the working directory of the JVM.
 */
public final class OfficialDump {
    private OfficialDump() { }

    /** Replaces the exit of the process, which the tool requests if its arguments are wrong. */
    private static final class ExitRequested extends RuntimeException {
        private static final long serialVersionUID = 1L;

        ExitRequested(int status) {
            super("exit " + status, null, false, false);
        }
    }

    public static void main(String[] unused) throws IOException {
        DataInputStream requests = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        Exit.setExitProcedure((status, message) -> {
            throw new ExitRequested(status);
        });
        while (true) {
            int count;
            try {
                count = requests.readInt();
            } catch (EOFException closed) {
                return;
            }
            String[] args = new String[count];
            for (int i = 0; i < count; i++) {
                args[i] = new String(requests.readNBytes(requests.readInt()), StandardCharsets.UTF_8);
            }
            answer(args, answers);
        }
    }

    private static void answer(String[] args, DataOutputStream answers) throws IOException {
        ByteArrayOutputStream stdout = new ByteArrayOutputStream();
        ByteArrayOutputStream stderr = new ByteArrayOutputStream();
        PrintStream stdoutBefore = System.out;
        PrintStream stderrBefore = System.err;
        System.setOut(new PrintStream(stdout, false, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(stderr, false, StandardCharsets.UTF_8));
        String end = "";
        try {
            DumpLogSegments.main(args);
        } catch (ExitRequested exit) {
            end = exit.getMessage();
        } catch (Throwable death) {
            end = death.toString();
        } finally {
            System.out.flush();
            System.err.flush();
            System.setOut(stdoutBefore);
            System.setErr(stderrBefore);
        }
        write(answers, stdout.toByteArray());
        write(answers, stderr.toByteArray());
        write(answers, end.getBytes(StandardCharsets.UTF_8));
        answers.flush();
    }

    private static void write(DataOutputStream answers, byte[] content) throws IOException {
        answers.writeInt(content.length);
        answers.write(content);
    }
}
