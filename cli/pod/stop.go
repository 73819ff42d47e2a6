package pod

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// Stop is the command stop.
func Stop(a *app.App) *cobra.Command {
	var grace int64
	cmd := &cobra.Command{
		Use:        "stop POD…",
		Short:      "End a pod's containers, then its machine; the pod stays listed",
		SuggestFor: []string{"kill"},
		Example: `  bulkhead stop web
  bulkhead stop -t 0 web      # at once`,
		Args: app.AtLeast("POD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := api.StopRequest{}
			if cmd.Flags().Changed("time") {
				if grace < 0 {
					return fmt.Errorf("--time %d: give 0 seconds or more", grace)
				}
				req.Grace = &grace
			}
			return a.EachPod(args, func(ref string) error { return a.Stop(cmd.Context(), ref, req) })
		},
	}
	cmd.Flags().Int64VarP(&grace, "time", "t", 0, "seconds between TERM and KILL (default: the pod's terminationGracePeriodSeconds)")
	return cmd
}
