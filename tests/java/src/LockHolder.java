import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.server.util.FileLock;

/**
 * Acquires and releases the lock of a log directory, as a broker does.
 *
 * <p>Usage: {@code LockHolder DIRECTORY}. For each line "lock" on standard input it prints "locked" or "refused"; for
 * each line "stop" it releases the lock as a stopping broker does, and prints "stopped".
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
