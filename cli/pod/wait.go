package pod

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// Wait is the command wait.
func Wait(a *app.App) *cobra.Command {
	var condition string
	var t app.Targets
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait POD…",
		Short: "Wait until pods have ended or meet a condition",
		Long: `Wait until pods have ended, print their exit codes, and exit with the first one that is
not 0. With --for, wait for a condition of each pod, as kubectl does: that it is removed
(delete), that a condition of its status is true (condition=Ready) or has another value
(condition=Ready=false), or that a field has a value (jsonpath='{.status.phase}'=Running)
or any value (jsonpath='{.status.podIP}'). If a pod has ended and does not meet the
condition, the command fails at once.`,
		Example: `  bulkhead run -d job.yaml && bulkhead wait job
  bulkhead wait extract transform load
  bulkhead wait --for condition=Ready --timeout 2m web
  bulkhead wait --for jsonpath='{.status.podIP}' web
  bulkhead wait --for delete -l app=web`,
		Args: t.Args,
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout < 0 {
				return fmt.Errorf("--timeout %v: must be a duration such as 2m, or 0 for no limit", timeout)
			}
			ctx := cmd.Context()
			if condition != "" && !cmd.Flags().Changed("timeout") {
				timeout = 30 * time.Second
			}
			if timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, timeout)
				defer cancel()
			}
			if condition != "" {
				return a.EachTarget(ctx, t, args, func(ref string) (string, error) {
					touched, err := a.Await(ctx, ref, condition)
					if condition == "delete" && errors.Is(err, errdefs.ErrNotFound) {
						return ref, nil
					}
					return touched, err
				})
			}
			refs, err := a.Targets(ctx, t, args)
			if err != nil {
				return err
			}
			return waitEnds(ctx, a, refs)
		},
	}
	t.Add(cmd)
	cmd.Flags().StringVar(&condition, "for", "",
		"condition: delete, condition=NAME[=STATUS] or jsonpath=TEMPLATE[=VALUE] (default: the pod's end)")
	cmd.Flags().DurationVar(&timeout, "timeout", 0,
		"longest time to wait for all pods; 0 waits forever (default: 30s with --for, else forever)")
	return cmd
}

// waitEnds waits for each pod to end and prints its exit code.
func waitEnds(ctx context.Context, a *app.App, refs []string) error {
	code := 0
	for _, ref := range refs {
		var r api.Result
		if err := a.Client.Call(ctx, "POST", a.PodPath(ref, "wait"), nil, nil, &r); err != nil {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("%w waiting for the end of pod %s", app.ErrTimeout, ref)
			}
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
}
