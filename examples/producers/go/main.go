// Sends three versions of one application: go run . localhost:9092 TOPIC ID
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	topic, id := os.Args[2], os.Args[3]
	// Producers of franz-go are idempotent unless they are configured otherwise.
	client, err := kgo.NewClient(kgo.SeedBrokers(os.Args[1]), kgo.RequiredAcks(kgo.AllISRAcks()))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for i, rate := range []string{"18.4", "17.9", "17.2"} {
		kind := map[bool]string{true: "CREATE", false: "UPDATE"}[i == 0]
		value, _ := json.Marshal(map[string]any{
			"id": id, "version": i + 1, "type": kind, "updatedAt": time.Now().Format(time.RFC3339Nano),
			"clientId": "example-go", "author": "m.prygunov",
			"data": map[string]any{"number": "N-" + id, "rate": rate},
		})
		record := &kgo.Record{Topic: topic, Key: []byte(id), Value: value}
		if err := client.ProduceSync(context.Background(), record).FirstErr(); err != nil {
			log.Fatal(err)
		}
	}
}
