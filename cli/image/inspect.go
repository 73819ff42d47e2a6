package image

import (
	"net/url"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/output"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

func inspect(a *app.App) *cobra.Command {
	f := output.Format("json")
	cmd := &cobra.Command{
		Use: "inspect IMAGE…", Short: "Show details of images, with their configuration", Args: app.AtLeast("IMAGE"),
		Example: `  bulkhead image inspect localhost/app:dev
  bulkhead image inspect localhost/app:dev -o jsonpath={.items[0].config.config.Entrypoint}`,
		RunE: func(cmd *cobra.Command, args []string) error {
			list := []api.ImageDetail{}
			for _, ref := range args {
				var detail api.ImageDetail
				if err := a.Client.Call(cmd.Context(), "GET", "/v1/images/"+url.PathEscape(ref), nil, nil, &detail); err != nil {
					return err
				}
				list = append(list, detail)
			}
			return a.Show(cmd.Context(), f, list, output.Views{})
		},
	}
	f.Add(cmd)
	return cmd
}
