package tty

import (
	"fmt"
	"io"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// Raw is a terminal in raw mode. However this process ends, the
// terminal gets its settings back: a small process of its own, the guard, waits
// for its end.
type Raw struct {
	FD    int
	old   *term.State
	bye   io.Writer
	text  string
	guard *exec.Cmd
	done  io.WriteCloser // a byte written to it says that all went well
}

// MakeRaw sets the terminal in to raw mode. farewell is printed to out, the same
// terminal, before it is as it was again.
func MakeRaw(in, out *os.File, farewell string) (*Raw, error) {
	fd := int(in.Fd())
	settings, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("read the terminal's settings: %w", err)
	}
	r := &Raw{FD: fd, bye: out, text: farewell}
	if err := r.watch(settings, in, out); err != nil {
		return nil, fmt.Errorf("guard the terminal: %w", err)
	}
	if r.old, err = term.MakeRaw(fd); err != nil {
		r.dismiss()
		return nil, fmt.Errorf("set the terminal: %w", err)
	}
	return r, nil
}

// Restore gives the terminal its settings back. A terminal that is gone is
// nobody to tell.
func (r *Raw) Restore() {
	fmt.Fprint(r.bye, r.text)
	_ = term.Restore(r.FD, r.old)
	r.dismiss()
}
