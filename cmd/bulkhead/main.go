// Command bulkhead runs Kubernetes pods, each in its own small VM. It is a client of bulkhead-engine, which it
// starts.
package main

import (
	"context"
	"os"

	"github.com/bulkhead-project/bulkhead/cli"
)

func main() { os.Exit(cli.Main(context.Background(), os.Args[1:])) }
