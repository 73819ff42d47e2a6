package image

import (
	"net/url"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
)

func rm(a *app.App) *cobra.Command {
	var owner user
	cmd := &cobra.Command{
		Use: "rm IMAGE…", Short: "Remove images that no pod uses", Args: app.AtLeast("IMAGE"),
		Example: "  bulkhead image rm localhost/app:dev",
		RunE: func(cmd *cobra.Command, args []string) error {
			query, err := owner.query()
			if err != nil {
				return err
			}
			return a.EachPod(args, func(ref string) (string, error) {
				return ref, a.Client.Call(cmd.Context(), "DELETE", "/v1/images/"+url.PathEscape(ref), query, nil, nil)
			})
		},
	}
	owner.add(cmd)
	return cmd
}
