package host

import (
	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/output"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// Version is the command version.
func Version(a *app.App) *cobra.Command {
	var f output.Format
	cmd := &cobra.Command{
		Use: "version", Short: "Show the versions of Bulkhead and its parts", Args: app.AtMost(),
		Example: "  bulkhead version -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var v api.Version
			if err := a.Client.Call(cmd.Context(), "GET", "/v1/version", nil, nil, &v); err != nil {
				return err
			}
			if f == "" {
				f = "yaml"
			}
			return a.Show(cmd.Context(), f, v, output.Views{})
		},
	}
	f.Add(cmd)
	return cmd
}
