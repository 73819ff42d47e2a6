package volume

import (
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
)

func rm(a *app.App) *cobra.Command {
	force := false
	cmd := &cobra.Command{
		Use: "rm VOLUME…", Short: "Remove volumes that no pod uses, with their contents", Args: app.AtLeast("VOLUME"),
		Example: "  bulkhead volume rm data\n  bulkhead volume rm -f data media",
		RunE: func(cmd *cobra.Command, args []string) error {
			query := url.Values{"force": {strconv.FormatBool(force)}}
			return a.EachPod(args, func(name string) (string, error) {
				return name, a.Client.Call(cmd.Context(), "DELETE", path(name, ""), query, nil, nil)
			})
		},
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "first remove the pods that use them, even running ones")
	return cmd
}
