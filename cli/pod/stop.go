package pod

import (
	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
)

// Stop is the command stop.
func Stop(a *app.App) *cobra.Command {
	var g grace
	var t app.Targets
	cmd := &cobra.Command{
		Use:   "stop POD…",
		Short: "Stop the containers of pods, then their VMs; the pods stay listed",
		Example: `  bulkhead stop web
  bulkhead stop -t 0 web      # at once
  bulkhead stop -l app=web`,
		Args: t.Args,
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := g.request(cmd)
			if err != nil {
				return err
			}
			return a.EachTarget(cmd.Context(), t, args, func(ref string) (string, error) { return a.Stop(cmd.Context(), ref, req) })
		},
	}
	g.add(cmd)
	t.Add(cmd)
	return cmd
}
