package cli

import (
	"encoding/json"

	"github.com/spf13/cobra"
)

func (a *app) inspectCmd() *cobra.Command {
	f := format("yaml")
	var sandbox bool
	cmd := &cobra.Command{
		Use:        "inspect POD",
		Short:      "Show a pod with its status, as the Kubernetes API would",
		SuggestFor: []string{"describe"},
		Example: `  bulkhead inspect web
  bulkhead inspect web -o jsonpath={.status.podIP}
  bulkhead inspect --sandbox web      # the virtual machine's own facts`,
		Args: exactly("POD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := podPath(args[0], "")
			if sandbox {
				path = podPath(args[0], "sandbox")
			}
			var v json.RawMessage
			if err := a.client.Call(cmd.Context(), "GET", path, nil, nil, &v); err != nil {
				return err
			}
			var value any
			if err := json.Unmarshal(v, &value); err != nil {
				return err
			}
			return a.show(cmd.Context(), f, value, views{})
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&sandbox, "sandbox", false, "show the virtual machine instead of the pod")
	return cmd
}
