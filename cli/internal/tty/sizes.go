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

// Size is a terminal's size now, zero for another stream.
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

// Sizes sends the terminal's size now and at every change of it. With redraw it first sends another height, since a
// program draws its screen or prompt again only when the size has changed.
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
				continue // the terminal went away; the stream's end tells
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
