// Runs the fake Pub/Sub server of Google's Go client until its standard input ends, and prints where it listens.
package main

import (
	"fmt"
	"io"
	"os"

	"cloud.google.com/go/pubsub/v2/pstest"
)

func main() {
	server := pstest.NewServer()
	defer server.Close()
	fmt.Println(server.Addr)
	io.Copy(io.Discard, os.Stdin)
}
