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
		Use: "create NAME", Short: "Make a volume: a disk for one pod at a time, bare or not, or a shared directory", Args: app.Exactly("NAME"),
		Long: `Make a volume. It is a disk with a file system of its size, which one pod at a time can
have, or with --shared a directory of this machine for any number of pods, whose size
nobody holds them to. With --block it is a bare disk, for what a pod's volumeDevices name.`,
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
					return fmt.Errorf("--label %q: give KEY=VALUE", label)
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
	cmd.Flags().StringVar(&size, "size", "10Gi", "size of the disk; takes no room before it is written to")
	cmd.Flags().BoolVar(&req.Shared, "shared", false, "a directory that any number of pods may use at once")
	cmd.Flags().BoolVar(&req.Block, "block", false, "a disk without a file system, for volumeDevices")
	cmd.MarkFlagsMutuallyExclusive("block", "shared")
	cmd.Flags().StringArrayVarP(&labels, "label", "l", nil, "label: KEY=VALUE")
	return cmd
}
