// Bulkhead-guest makes what Bulkhead's build needs and its users do not run: the
// guest bundle and the demo image.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	root := &cobra.Command{
		Use:           "bulkhead-guest",
		Short:         "Make the guest bundle and the demo image",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(bundleCommand(), demoImageCommand())
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "bulkhead-guest:", err)
		os.Exit(1)
	}
}
