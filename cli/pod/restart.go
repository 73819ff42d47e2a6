package pod

import (
	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
)

// Restart is the command restart.
func Restart(a *app.App) *cobra.Command {
	var g grace
	var t app.Targets
	cmd := &cobra.Command{
		Use:   "restart POD…",
		Short: "Stop pods and start them again, each in a new VM",
		Long: `Stop the pods that run, and start them again, each in a new VM. Their containers are
created again, as with bulkhead stop and bulkhead start. Their logs continue.`,
		Example: `  bulkhead restart web
  bulkhead restart -t 2 web db`,
		Args: t.Args,
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := g.request(cmd)
			if err != nil {
				return err
			}
			return a.EachTarget(cmd.Context(), t, args, func(ref string) (string, error) {
				if _, err := a.Stop(cmd.Context(), ref, req); err != nil {
					return "", err
				}
				return a.Change(cmd.Context(), "POST", a.PodPath(ref, "start"), nil, nil)
			})
		},
	}
	g.add(cmd)
	t.Add(cmd)
	return cmd
}
