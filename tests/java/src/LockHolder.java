import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.server.util.FileLock;

/**
 * Takes and gives back the lock of a log directory, as a broker does.
 *
 * <p>Usage: {@code LockHolder DIRECTORY}. For each line "lock" of standard input it says "locked" or "refused", for
 * each line "stop" it does what a broker does that stops, and says "stopped".
 */
public final class LockHolder {
    private LockHolder() {
    }

    public static void main(String[] args) throws IOException {
        File file = new File(args[0], ".lock");
        FileLock lock = null;
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String request = requests.readLine(); request != null; request = requests.readLine()) {
            if (request.equals("lock")) {
                lock = new FileLock(file);
                System.out.println(lock.tryLock() ? "locked" : "refused");
            } else {
                lock.destroy();
                System.out.println("stopped");
            }
        }
    }
}
