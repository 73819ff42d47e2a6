package host

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/check"
	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// Reap is the command reap.
func Reap(a *app.App) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "reap",
		Short: "Adopt or clean up what a crash left behind (also done at every start)",
		Example: `  bulkhead reap
  bulkhead reap --all      # also for a kubelet's and a node's engine that has died`,
		Args: app.AtMost(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			swept, err := check.Sweep(cmd.Context(), a.Roots)
			if err != nil {
				return fmt.Errorf("remove what a killed check has left: %w", err)
			}
			var r api.Reaped
			if err := a.Client.Call(cmd.Context(), "POST", "/v1/reap", url.Values{"all": {strconv.FormatBool(all)}}, nil, &r); err != nil {
				return err
			}
			fmt.Fprintf(a.Out, "adopted %d, removed %d\n", r.Adopted, r.Removed+swept)
			for _, name := range r.Alive {
				fmt.Fprintf(a.Out, "instance %s: its engine runs and reaps by itself\n", name)
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
