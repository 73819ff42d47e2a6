package pod

import (
	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// Kill is the command kill.
func Kill(a *app.App) *cobra.Command {
	var t app.Targets
	var signal, container string
	cmd := &cobra.Command{
		Use:   "kill POD…",
		Short: "Send a signal to the containers of pods",
		Long: `Send a signal to the first process of each running container of a pod, or of one
container. A container that ends is restarted if the pod's restartPolicy says so. To stop a
pod, use bulkhead stop.`,
		Example: `  bulkhead kill web
  bulkhead kill -s HUP -c nginx web`,
		Args: t.Args,
		RunE: func(cmd *cobra.Command, args []string) error {
			number, err := app.Signal("--signal", signal)
			if err != nil {
				return err
			}
			req := api.KillRequest{Container: container, Signal: int(number)}
			return a.EachTarget(cmd.Context(), t, args, func(ref string) (string, error) {
				return a.Change(cmd.Context(), "POST", a.PodPath(ref, "kill"), nil, req)
			})
		},
	}
	t.Add(cmd)
	cmd.Flags().StringVarP(&signal, "signal", "s", "KILL", "signal to send: a name, such as HUP, or a number")
	cmd.Flags().StringVarP(&container, "container", "c", "", "signal only this container")
	return cmd
}
