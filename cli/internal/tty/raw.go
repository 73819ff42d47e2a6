package tty

import (
	"fmt"
	"io"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// Raw is a terminal in raw mode. A small child process, the guard, restores the terminal's settings even if this
// process is killed.
type Raw struct {
	FD    int
	old   *term.State
	bye   io.Writer
	text  string
	guard *exec.Cmd
	done  io.WriteCloser // a byte written to it tells the guard that the settings are restored
}

// MakeRaw sets the terminal in to raw mode. Restore prints farewell to out, the same terminal, before it restores
// the settings.
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
		r.stopGuard()
		return nil, fmt.Errorf("set the terminal: %w", err)
	}
	return r, nil
}

// Restore restores the terminal's settings. It ignores errors, because the terminal may be closed.
func (r *Raw) Restore() {
	fmt.Fprint(r.bye, r.text)
	_ = term.Restore(r.FD, r.old)
	r.stopGuard()
}
