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
		Short: "Take over running pods and clean up after a crash (also done at every start)",
		Example: `  bulkhead reap
  bulkhead reap --all      # also for bulkhead cri and bulkhead node, if they died`,
		Args: app.AtMost(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			swept, err := check.Sweep(cmd.Context(), a.Roots)
			if err != nil {
				return fmt.Errorf("clean up after a killed check: %w", err)
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
	cmd.Flags().BoolVar(&all, "all", false, "also reap the instances of bulkhead cri and bulkhead node")
	return cmd
}
