package tty

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// SignalError is why a context ended that catch has made.
type SignalError struct{ syscall.Signal }

func (e SignalError) Error() string { return e.String() }

// Catch returns a context that ends with the first of the signals, with a
// signalError for its cause. stop gives the signals back.
func Catch(ctx context.Context, signals ...os.Signal) (caught context.Context, stop func()) {
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
