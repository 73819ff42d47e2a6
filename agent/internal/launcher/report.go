package launcher

import (
	"fmt"
	"syscall"
)

// step is a report's step.
type step uint32

// running is the step of a process that executes its program next.
const running step = 1

// The failed steps at the end, which the OCI runtime would fail at in the same way.
const (
	directory step = iota + 28 // enter the working directory
	find                       // find the program
	open                       // execute the program
)

// steps are all failed steps.
var steps = map[step]string{
	16: "enter the cgroup", 17: "join the namespaces", 18: "make a session", 19: "fork", 20: "set the streams",
	21: "set a limit", 22: "install the seccomp filter", 23: "set the groups", 24: "own the streams",
	25: "set the capabilities", 26: "set the user", 27: "set no_new_privs",
	31: "change the root", 32: "mount", 33: "make a device", 34: "hide or protect a path", 35: "set the name",
	directory: "chdir", find: "find the program", open: "open the program",
}

// StepError is the reason why a process's program cannot run.
type StepError struct {
	step  step
	errno syscall.Errno
}

func (f *StepError) Error() string { return fmt.Sprintf("%s: %v", steps[f.step], f.errno) }

// Unwrap returns the error number.
func (f *StepError) Unwrap() error { return f.errno }

// Message returns the failure in crun's words, for the command and the working directory.
func (f *StepError) Message(command, cwd string) string {
	reason := f.errno.Error()
	reason = string(reason[0]&^0x20) + reason[1:] // crun's begin with a capital letter
	switch f.step {
	case directory:
		return fmt.Sprintf("chdir `%s`: %s", cwd, reason)
	case find:
		return fmt.Sprintf("executable file `%s` not found in $PATH: %s", command, reason)
	}
	return "open executable: " + reason
}
