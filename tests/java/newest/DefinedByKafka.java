import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Prints the levels of metadata.version with their names, the highest level of each feature, and the names of topic
 * configurations.
 */
public class DefinedByKafka {
    public static void main(String[] args) {
        for (MetadataVersion version : MetadataVersion.values()) {
            if (version.compareTo(MetadataVersion.LATEST_PRODUCTION) <= 0) {
                System.out.println("level " + version.featureLevel() + " " + version.version());
            }
        }
        for (Feature feature : Feature.PRODUCTION_FEATURES) {
            System.out.println("feature " + feature.featureName() + " " + feature.latestProduction());
        }
        for (String name : LogConfig.nonInternalConfigNames()) {
            System.out.println("config " + name + " -");
        }
    }
}
