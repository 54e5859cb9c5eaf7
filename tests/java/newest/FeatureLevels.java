import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.MetadataVersion;

/** Prints the levels of metadata.version with their names, and the highest level of each feature. */
public class FeatureLevels {
    public static void main(String[] args) {
        for (MetadataVersion version : MetadataVersion.values()) {
            if (version.compareTo(MetadataVersion.LATEST_PRODUCTION) <= 0) {
                System.out.println("level " + version.featureLevel() + " " + version.version());
            }
        }
        for (Feature feature : Feature.PRODUCTION_FEATURES) {
            System.out.println("feature " + feature.featureName() + " " + feature.latestProduction());
        }
    }
}
