package run

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// valid says whether the flags go together.
func (r *runner) valid(cmd *cobra.Command, req api.RunRequest) error {
	switch {
	case r.wait && !req.Detach:
		return errors.New("--wait is for -d: a foreground run waits for the end")
	case !r.wait && cmd.Flags().Changed("timeout"):
		return errors.New("--timeout is for --wait")
	case r.timeout <= 0:
		return fmt.Errorf("--timeout %v: give a duration greater than 0, as 5m", r.timeout)
	}
	return nil
}

// awaitReady waits until every pod that was started is ready or has succeeded.
func (r *runner) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	var errs []error
	for _, uid := range r.pods {
		_, err := r.app.Await(ctx, uid, "running")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
