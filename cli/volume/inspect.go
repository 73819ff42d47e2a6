package volume

import (
	"net/url"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/output"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// path returns the engine's path for a volume, with the suffix what.
func path(name, what string) string { return "/v1/volumes/" + url.PathEscape(name) + what }

func inspect(a *app.App) *cobra.Command {
	f := output.Format("json")
	cmd := &cobra.Command{
		Use: "inspect VOLUME…", Short: "Show details of volumes", Args: app.AtLeast("VOLUME"),
		Example: `  bulkhead volume inspect data
  bulkhead volume inspect media -o jsonpath={.items[0].path}`,
		RunE: func(cmd *cobra.Command, args []string) error {
			list := []api.Volume{}
			for _, name := range args {
				var v api.Volume
				if err := a.Client.Call(cmd.Context(), "GET", path(name, ""), nil, nil, &v); err != nil {
					return err
				}
				list = append(list, v)
			}
			return a.Show(cmd.Context(), f, list, output.Views{})
		},
	}
	f.Add(cmd)
	return cmd
}
