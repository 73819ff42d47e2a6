// Package volume has the commands for named volumes.
package volume

import (
	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
)

// Command is the command volume.
func Command(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "volume", Aliases: []string{"volumes"}, Short: "Create, list, inspect, resize and remove named volumes",
		Long: `Create, list, inspect, resize and remove named volumes. A volume outlives the pods that
use it, the engine and a reboot: only rm and prune remove it. bulkhead run -v NAME:POD and
a PersistentVolumeClaim in a file create missing volumes.`,
		Example: `  bulkhead volume create data --size 20Gi
  bulkhead run --rm -v data:/data docker.io/library/busybox:1.36 df /data
  bulkhead volume rm data`,
	}
	cmd.AddCommand(create(a), ls(a), inspect(a), resize(a), rm(a), pruneCmd(a))
	return cmd
}
