package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// defaultPatience is the default of --wait-timeout.
const defaultPatience = 5 * time.Minute

// valid returns an error if the flags do not fit together.
func (r *runner) valid(cmd *cobra.Command, req api.RunRequest) error {
	switch {
	case r.wait && !req.Detach:
		return errors.New("--wait needs -d: a foreground run waits for the pods to end")
	case !r.wait && cmd.Flags().Changed("wait-timeout"):
		return errors.New("--wait-timeout needs --wait; --timeout stops the pods")
	case r.patience <= 0:
		return fmt.Errorf("--wait-timeout %v: must be greater than 0, such as 5m", r.patience)
	}
	return nil
}

// awaitReady waits until every started pod is ready or has succeeded. It reports each pod that has failed.
func (r *runner) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	var errs []error
	for _, p := range r.pods {
		failed, err := r.app.AwaitRunning(ctx, p.UID, p.Name)
		if failed != nil {
			r.failed(*failed)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
