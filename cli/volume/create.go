package volume

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/text"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

func create(a *app.App) *cobra.Command {
	var req api.VolumeRequest
	var labels []string
	var size string
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a volume: a disk for one pod at a time, or a shared directory", Args: app.Exactly("NAME"),
		Long: `Create a volume. It is a disk with a file system, which one pod at a time can use. With
--shared it is a directory of the host, which any number of pods can use, and its size is
not enforced. With --block it is a disk without a file system, for a pod's volumeDevices.`,
		Example: `  bulkhead volume create data
  bulkhead volume create media --shared --label team=web`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			req.Name = args[0]
			if req.Size, err = text.Quantity(size); err != nil {
				return fmt.Errorf("--size %w", err)
			}
			for _, label := range labels {
				key, value, _ := strings.Cut(label, "=")
				if key == "" {
					return fmt.Errorf("--label %q: must be KEY=VALUE", label)
				}
				if req.Labels == nil {
					req.Labels = map[string]string{}
				}
				req.Labels[key] = value
			}
			var made api.Volume
			if err := a.Client.Call(cmd.Context(), "POST", "/v1/volumes", nil, req, &made); err != nil {
				return err
			}
			fmt.Fprintln(a.Out, made.Name)
			return nil
		},
	}
	cmd.Flags().StringVar(&size, "size", "10Gi", "size of the disk; space is allocated only when it is written")
	cmd.Flags().BoolVar(&req.Shared, "shared", false, "create a directory that any number of pods can use at once")
	cmd.Flags().BoolVar(&req.Block, "block", false, "create a disk without a file system, for volumeDevices")
	cmd.MarkFlagsMutuallyExclusive("block", "shared")
	cmd.Flags().StringArrayVarP(&labels, "label", "l", nil, "label of the volume, KEY=VALUE")
	return cmd
}
