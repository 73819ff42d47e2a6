// Bulkhead-guest creates the guest bundle and the demo image for Bulkhead's build. Users do not run it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use:           "bulkhead-guest",
		Short:         "Make the guest bundle and the demo image",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(bundleCommand(), demoImageCommand())
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bulkhead-guest:", err)
		stop()
		os.Exit(1)
	}
}
