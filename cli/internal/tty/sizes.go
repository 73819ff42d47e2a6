package tty

import (
	"math"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// Size returns the current size of a terminal, zero for any other stream.
func Size(of any) api.Size {
	f, ok := of.(*os.File)
	if !ok {
		return api.Size{}
	}
	w, h, err := term.GetSize(int(f.Fd()))
	if err != nil || w < 0 || h < 0 || w > math.MaxUint16 || h > math.MaxUint16 {
		return api.Size{}
	}
	return api.Size{Width: uint16(w), Height: uint16(h)}
}

// Sizes sends the terminal's size now and after every change. With redraw it first sends another height, because a
// program redraws its screen or prompt only when the size changes.
func Sizes(fd int, redraw bool) (<-chan stream.Size, func()) {
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
				continue // the terminal is closed; the stream's end reports it
			}
			next := []stream.Size{{Width: uint16(w), Height: uint16(h)}}
			if redraw {
				next, redraw = append([]stream.Size{{Width: uint16(w), Height: uint16(h) + 1}}, next...), false
			}
			for _, size := range next {
				select {
				case sizes <- size:
				case <-done:
					return
				}
			}
		}
	}()
	return sizes, func() {
		signal.Stop(changes)
		close(done)
		<-ended
	}
}
