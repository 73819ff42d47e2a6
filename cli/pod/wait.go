package pod

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// Wait is the command wait.
func Wait(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use:   "wait POD…",
		Short: "Wait until pods have ended, and exit with the first exit code that is not 0",
		Example: `  bulkhead run -d job.yaml && bulkhead wait job
  bulkhead wait extract transform load`,
		Args: app.AtLeast("POD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			code := 0
			for _, ref := range args {
				var r api.Result
				if err := a.Client.Call(cmd.Context(), "POST", app.PodPath(ref, "wait"), nil, nil, &r); err != nil {
					return err
				}
				fmt.Fprintln(a.Out, r.ExitCode)
				if code == 0 {
					code = r.ExitCode
				}
			}
			if code != 0 {
				return app.ExitError(code)
			}
			return nil
		},
	}
}
