package tty

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// Sizes sends the terminal's size now and at every change of it.
func Sizes(fd int) (<-chan stream.Size, func()) {
	changes := make(chan os.Signal, 1)
	sizes := make(chan stream.Size, 1)
	done := make(chan struct{})
	signal.Notify(changes, syscall.SIGWINCH)
	changes <- syscall.SIGWINCH
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-changes:
			}
			w, h, err := term.GetSize(fd)
			if err != nil {
				continue // the terminal went away; the stream's end tells
			}
			select {
			case sizes <- stream.Size{Width: uint16(w), Height: uint16(h)}:
			case <-done:
				return
			}
		}
	}()
	return sizes, func() {
		signal.Stop(changes)
		close(done)
		<-ended
	}
}
