package tty

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// SignalError is the cause of a context that NotifyContext ended.
type SignalError struct{ syscall.Signal }

func (e SignalError) Error() string { return e.String() }

// NotifyContext returns a context that ends with the first of the signals, with a SignalError as its cause. stop
// restores the default handling of the signals.
func NotifyContext(ctx context.Context, signals ...os.Signal) (caught context.Context, stop func()) {
	caught, cancel := context.WithCancelCause(ctx)
	arrived := make(chan os.Signal, 1)
	signal.Notify(arrived, signals...)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case s := <-arrived:
			if number, ok := s.(syscall.Signal); ok {
				cancel(SignalError{number})
			}
		case <-caught.Done():
		}
	}()
	return caught, func() {
		signal.Stop(arrived)
		cancel(nil)
		<-ended
	}
}
