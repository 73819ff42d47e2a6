package template

import (
	"net/url"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
)

func rm(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "rm KEY…", Short: "Remove templates; running pods are not affected", Args: app.AtLeast("KEY"),
		Example: "  bulkhead template rm 3f2a",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.EachPod(args, func(key string) (string, error) {
				return key, a.Client.Call(cmd.Context(), "DELETE", "/v1/templates/"+url.PathEscape(key), nil, nil, nil)
			})
		},
	}
}
