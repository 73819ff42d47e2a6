package pod

import (
	"errors"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// Rm is the command rm.
func Rm(a *app.App) *cobra.Command {
	var force, all bool
	cmd := &cobra.Command{
		Use:     "rm POD…",
		Aliases: []string{"delete"},
		Short:   "Remove pods that have ended, or with --force running ones",
		Example: `  bulkhead rm web
  bulkhead rm -f web db
  bulkhead rm -f --all`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if all {
				var pods []api.Pod
				if err := a.Client.Call(cmd.Context(), "GET", "/v1/pods", nil, nil, &pods); err != nil {
					return err
				}
				for _, p := range pods {
					args = append(args, p.Namespace+"/"+p.Name)
				}
			} else if len(args) == 0 {
				return errors.New("name the pods to remove, or give --all")
			}
			q := url.Values{"force": {strconv.FormatBool(force)}}
			return a.EachPod(args, func(ref string) error {
				return a.Client.Call(cmd.Context(), "DELETE", app.PodPath(ref, ""), q, nil, nil)
			})
		},
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "kill what still runs")
	cmd.Flags().BoolVarP(&all, "all", "a", false, "every pod")
	return cmd
}
