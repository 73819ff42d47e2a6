package probe

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Hook runs a lifecycle hook. It returns when the hook has ended, or with an error when ctx ends.
func (t *Target) Hook(ctx context.Context, handler *corev1.LifecycleHandler) error {
	switch {
	case handler.Exec != nil:
		_, _, err := Run(ctx, t.Runtime, t.ID, handler.Exec.Command, 0)
		return err
	case handler.Sleep != nil:
		timer := time.NewTimer(time.Duration(handler.Sleep.Seconds) * time.Second)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		return ctx.Err()
	case handler.HTTPGet != nil:
		port, err := Port(handler.HTTPGet.Port, t.Container)
		if err != nil {
			return err
		}
		return hookHTTP(ctx, t.Dial, handler.HTTPGet, port, t.Host)
	case handler.TCPSocket != nil:
		port, err := Port(handler.TCPSocket.Port, t.Container)
		if err != nil {
			return err
		}
		result, why, err := TCP(ctx, t.Dial, port)
		if err == nil && result == Failure {
			err = errors.New(Line(why))
		}
		return err
	}
	return errors.New("the hook has no handler")
}
