package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/bulkhead-project/bulkhead/shim/stream"
)

// rawTerminal is a terminal in raw mode. However this process ends, the
// terminal gets its settings back: a small process of its own, the guard, waits
// for its end.
type rawTerminal struct {
	fd    int
	old   *term.State
	bye   io.Writer
	text  string
	guard *exec.Cmd
	done  io.WriteCloser // a byte written to it says that all went well
}

// guardCommand is the first argument of a guard.
const guardCommand = "__terminal"

// makeRaw sets the terminal in to raw mode. farewell is printed to out, the same
// terminal, before it is as it was again.
func makeRaw(in, out *os.File, farewell string) (*rawTerminal, error) {
	fd := int(in.Fd())
	settings, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("read the terminal's settings: %w", err)
	}
	r := &rawTerminal{fd: fd, bye: out, text: farewell}
	if err := r.watch(settings, in, out); err != nil {
		return nil, fmt.Errorf("guard the terminal: %w", err)
	}
	if r.old, err = term.MakeRaw(fd); err != nil {
		r.dismiss()
		return nil, fmt.Errorf("set the terminal: %w", err)
	}
	return r, nil
}

// watch starts the guard: in a session of its own, so that no signal of the
// terminal's ends it.
func (r *rawTerminal) watch(settings *unix.Termios, in, out *os.File) error {
	raw, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	r.guard = exec.Command("/proc/self/exe", guardCommand, string(raw), r.text)
	if r.done, err = r.guard.StdinPipe(); err != nil {
		return err
	}
	r.guard.Dir, r.guard.Stdout, r.guard.ExtraFiles = "/", out, []*os.File{in}
	r.guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return r.guard.Start()
}

// restore gives the terminal its settings back. A terminal that is gone is
// nobody to tell.
func (r *rawTerminal) restore() {
	fmt.Fprint(r.bye, r.text)
	_ = term.Restore(r.fd, r.old)
	r.dismiss()
}

func (r *rawTerminal) dismiss() {
	_, _ = r.done.Write([]byte{1}) // one that was killed reads nothing
	r.done.Close()
	_ = r.guard.Wait()
}

// guardTerminal is the guard's whole life: it waits for the end of its parent,
// and where that said nothing before, sets the terminal right.
func guardTerminal(args []string) int {
	if len(args) != 2 {
		return 2
	}
	var settings unix.Termios
	if err := json.Unmarshal([]byte(args[0]), &settings); err != nil {
		return 2
	}
	signal.Ignore(syscall.SIGHUP)
	var said [1]byte
	if n, _ := os.Stdin.Read(said[:]); n == 1 {
		return 0
	}
	err := unix.IoctlSetTermios(3, unix.TCSETS, &settings)
	fmt.Fprint(os.Stdout, args[1])
	if err != nil {
		return 1
	}
	return 0
}

// terminalSizes sends the terminal's size now and at every change of it.
func terminalSizes(fd int) (<-chan stream.Size, func()) {
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
