package volume

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/text"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

func resize(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "resize VOLUME SIZE", Short: "Enlarge a volume", Args: app.Exactly("VOLUME", "SIZE"),
		Long: `Enlarge a volume. Volumes never shrink. The file system of a disk grows at once if a pod
uses it, else when the next one starts.`,
		Example: "  bulkhead volume resize data 40Gi",
		RunE: func(cmd *cobra.Command, args []string) error {
			size, err := text.Quantity(args[1])
			if err != nil {
				return fmt.Errorf("size %w", err)
			}
			var v api.Volume
			if err := a.Client.Call(cmd.Context(), "POST", path(args[0], "/resize"), nil, api.VolumeRequest{Size: size}, &v); err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "%s %s\n", v.Name, text.Size(v.Size))
			return nil
		},
	}
}
