// Sends three versions of one application: java Produce localhost:9092 TOPIC ID
import java.time.Instant;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class Produce {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1], id = arguments[2];
        String[] rates = {"18.4", "17.9", "17.2"};
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0], "acks", "all", "enable.idempotence", true);
        try (var producer = new KafkaProducer<>(
                settings, new StringSerializer(), new StringSerializer())) {
            for (int version = 1; version <= rates.length; version++) {
                String message = """
                    {"id": "%s", "version": %d, "type": "%s", "updatedAt": "%s",
                     "clientId": "example-java", "author": "m.prygunov",
                     "data": {"number": "N-%s", "rate": "%s"}}""".formatted(
                    id, version, version == 1 ? "CREATE" : "UPDATE", Instant.now(),
                    id, rates[version - 1]);
                producer.send(new ProducerRecord<>(topic, id, message)).get();
            }
        }
    }
}
