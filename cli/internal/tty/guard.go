package tty

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// GuardCommand is the first argument of the guard process.
const GuardCommand = "__terminal"

// watch starts the guard. It has its own session, so that signals of the terminal do not end it.
func (r *Raw) watch(settings *unix.Termios, in, out *os.File) error {
	raw, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	r.guard = exec.Command("/proc/self/exe", GuardCommand, string(raw), r.text)
	if r.done, err = r.guard.StdinPipe(); err != nil {
		return err
	}
	r.guard.Dir, r.guard.Stdout, r.guard.ExtraFiles = "/", out, []*os.File{in}
	r.guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return r.guard.Start()
}

func (r *Raw) stopGuard() {
	_, _ = r.done.Write([]byte{1}) // a killed guard reads nothing
	r.done.Close()
	_ = r.guard.Wait()
}

// Guard is the main function of the guard. It waits for the end of its parent and restores the terminal, unless the
// parent announced that it has done so.
func Guard(args []string) int {
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
