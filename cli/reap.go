package cli

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

func (a *app) reapCmd() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "reap",
		Short: "Adopt or clean up what a crash left behind (also done at every start)",
		Example: `  bulkhead reap
  bulkhead reap --all      # also for a kubelet's and a node's engine that has died`,
		Args: atMost(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var r api.Reaped
			if err := a.client.Call(cmd.Context(), "POST", "/v1/reap", url.Values{"all": {strconv.FormatBool(all)}}, nil, &r); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "adopted %d, removed %d\n", r.Adopted, r.Removed)
			for _, name := range r.Alive {
				fmt.Fprintf(a.out, "instance %s: its engine runs and reaps by itself\n", name)
			}
			if len(r.Failed) > 0 {
				return fmt.Errorf("left for the next reap: %s", strings.Join(r.Failed, "; "))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "for every instance")
	return cmd
}

func (a *app) versionCmd() *cobra.Command {
	var f format
	cmd := &cobra.Command{
		Use: "version", Short: "Show the version of every part", Args: atMost(),
		Example: "  bulkhead version -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var v api.Version
			if err := a.client.Call(cmd.Context(), "GET", "/v1/version", nil, nil, &v); err != nil {
				return err
			}
			if f == "" {
				f = "yaml"
			}
			return a.show(cmd.Context(), f, v, views{})
		},
	}
	f.add(cmd)
	return cmd
}
