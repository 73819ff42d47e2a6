package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/supervisor/api"
)

func (a *app) reapCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "reap",
		Short:   "Adopt or clean up what a crash left behind (also done at every start)",
		Example: "  bulkhead reap",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var r api.Reaped
			if err := a.client.Call(cmd.Context(), "POST", "/v1/reap", nil, nil, &r); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "adopted %d, removed %d\n", r.Adopted, r.Removed)
			if len(r.Failed) > 0 {
				return fmt.Errorf("left for the next reap: %s", strings.Join(r.Failed, "; "))
			}
			return nil
		},
	}
}

func (a *app) versionCmd() *cobra.Command {
	var f format
	cmd := &cobra.Command{
		Use: "version", Short: "Show the version of every part", Args: cobra.NoArgs,
		Example: "  bulkhead version -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var v api.Version
			if err := a.client.Call(cmd.Context(), "GET", "/v1/version", nil, nil, &v); err != nil {
				return err
			}
			if f == "" {
				f = "yaml"
			}
			return f.print(a.out, v, nil)
		},
	}
	f.add(cmd)
	return cmd
}
