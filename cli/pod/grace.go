package pod

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// grace is the flag -t of commands that end pods.
type grace struct{ seconds int64 }

func (g *grace) add(cmd *cobra.Command) {
	cmd.Flags().Int64VarP(&g.seconds, "time", "t", 0, "seconds between SIGTERM and SIGKILL (default: the pod's terminationGracePeriodSeconds)")
}

func (g *grace) request(cmd *cobra.Command) (api.StopRequest, error) {
	if !cmd.Flags().Changed("time") {
		return api.StopRequest{}, nil
	}
	if g.seconds < 0 {
		return api.StopRequest{}, fmt.Errorf("--time %d: must be 0 or more seconds", g.seconds)
	}
	return api.StopRequest{Grace: &g.seconds}, nil
}
