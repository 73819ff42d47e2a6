package pod

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/output"
)

// Inspect is the command inspect.
func Inspect(a *app.App) *cobra.Command {
	f := output.Format("yaml")
	var sandbox bool
	cmd := &cobra.Command{
		Use:   "inspect POD",
		Short: "Show a pod with its status, as in the Kubernetes API",
		Example: `  bulkhead inspect web
  bulkhead inspect web -o jsonpath={.status.podIP}
  bulkhead inspect --sandbox web      # details of the VM`,
		Args: app.Exactly("POD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := a.PodPath(args[0], "")
			if sandbox {
				path = a.PodPath(args[0], "sandbox")
			}
			var v json.RawMessage
			if err := a.Client.Call(cmd.Context(), "GET", path, nil, nil, &v); err != nil {
				return err
			}
			var value any
			if err := json.Unmarshal(v, &value); err != nil {
				return err
			}
			return a.Show(cmd.Context(), f, value, output.Views{})
		},
	}
	f.Add(cmd)
	cmd.Flags().BoolVar(&sandbox, "sandbox", false, "show the VM instead of the pod")
	return cmd
}
