import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Answers what {@link StandardAuthorizer} decides.
 *
 * <p>A line is a word and fields, separated by tabs: {@code new} and the super users; {@code acl}, the type of the
 * resource, its name, the type of the pattern, the principal, the host, the operation and the permission;
 * {@code may}, the principal, the host, the operation, the type of the resource and its name. Only {@code may} is
 * answered, by ALLOWED or DENIED.
 */
public final class AuthorizerServer {
    private AuthorizerServer() {
    }

    public static void main(String[] unused) throws IOException {
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StandardAuthorizer authorizer = null;
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] words = line.split("\t", -1);
            if (words[0].equals("new")) {
                authorizer = new StandardAuthorizer();
                authorizer.configure(Map.of(StandardAuthorizer.SUPER_USERS_CONFIG, words[1]));
                authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
                authorizer.completeInitialLoad();
            } else if (words[0].equals("acl")) {
                StandardAcl acl = new StandardAcl(ResourceType.valueOf(words[1]), words[2],
                    PatternType.valueOf(words[3]), words[4], words[5], AclOperation.valueOf(words[6]),
                    AclPermissionType.valueOf(words[7]));
                authorizer.addAcl(Uuid.randomUuid(), acl);
            } else {
                ResourcePattern resource =
                    new ResourcePattern(ResourceType.valueOf(words[4]), words[5], PatternType.LITERAL);
                Action action = new Action(AclOperation.valueOf(words[3]), resource, 1, false, false);
                AuthorizationResult result = authorizer.authorize(new Asking(words[1], words[2]), List.of(action))
                    .get(0);
                answers.println(result);
                answers.flush();
            }
        }
    }

    private record Asking(String user, String host) implements AuthorizableRequestContext {
        @Override
        public String listenerName() {
            return "SASL_SSL";
        }

        @Override
        public SecurityProtocol securityProtocol() {
            return SecurityProtocol.SASL_SSL;
        }

        @Override
        public KafkaPrincipal principal() {
            return new KafkaPrincipal(KafkaPrincipal.USER_TYPE, user.substring(user.indexOf(':') + 1));
        }

        @Override
        public InetAddress clientAddress() {
            try {
                return InetAddress.getByName(host);
            } catch (IOException failure) {
                throw new IllegalArgumentException(failure);
            }
        }

        @Override
        public int requestType() {
            return 3;
        }

        @Override
        public int requestVersion() {
            return 12;
        }

        @Override
        public String clientId() {
            return "a test";
        }

        @Override
        public int correlationId() {
            return 7;
        }
    }
}
