package crun

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// CommandError is the failure of a crun command.
type CommandError struct {
	op, message string
	class       error // of agentv1, or nil
}

func (f *CommandError) Error() string {
	if f.class == nil {
		return fmt.Sprintf("crun %s: %s", f.op, f.message)
	}
	return fmt.Sprintf("%v: crun %s: %s", f.class, f.op, f.message)
}

// Unwrap returns the failure's class: one of agentv1's errors, or nil.
func (f *CommandError) Unwrap() error { return f.class }

const maxLog = 4 << 10

// failure reads crun's log.
func failure(op, log string, status unix.WaitStatus) error {
	message := "no message"
	if f, err := os.Open(log); err == nil {
		defer f.Close()
		buf := make([]byte, maxLog)
		n, _ := f.Read(buf)
		if text := strings.TrimSpace(string(buf[:n])); text != "" {
			message = text
		}
	}
	return classify(op, message, status)
}

func classify(op, message string, status unix.WaitStatus) *CommandError {
	f := &CommandError{op: op, message: message}
	switch {
	case strings.Contains(message, "executable file `") || strings.Contains(message, openExecutable),
		strings.Contains(message, "exec `"), strings.Contains(message, "find executable"):
		f.class = agentv1.ErrNotExec
		if strings.Contains(message, notInPath) || strings.Contains(message, "No such file") {
			f.class = agentv1.ErrNoCommand
		}
	case strings.HasPrefix(message, "the container `") && strings.HasSuffix(message, "` is not running"):
		f.class = agentv1.ErrBusy // it has just ended
	case status.Signaled():
		f.message = fmt.Sprintf("killed by signal %d", status.Signal())
	}
	return f
}

// Parts of crun's messages.
const (
	notInPath      = "not found in $PATH"
	openExecutable = "open executable"
	changeDir      = "chdir `"
)

// Words returns the failure to run a command, in the words of runc, which clients of OCI runtimes match. It is empty for
// any other failure.
func (f *CommandError) Words(command string) string {
	at := strings.LastIndex(f.message, ": ")
	reason := "unknown"
	if at >= 0 {
		reason = strings.ToLower(f.message[at+2:])
	}
	switch {
	case strings.Contains(f.message, notInPath) && !strings.Contains(command, "/"):
		return fmt.Sprintf("exec: %.200q: executable file not found in $PATH", command)
	case strings.Contains(f.message, notInPath):
		return fmt.Sprintf("exec: %.200q: stat %.200s: no such file or directory", command, command)
	case strings.Contains(f.message, openExecutable):
		if reason == "operation not permitted" { // of a directory
			reason = "permission denied"
		}
		return fmt.Sprintf("exec: %.200q: %s", command, reason)
	}
	_, rest, ok := strings.Cut(f.message, changeDir)
	if cwd, _, more := strings.Cut(rest, "`: "); ok && more {
		return fmt.Sprintf("chdir to cwd (%.200q) set in config.json failed: %s", cwd, reason)
	}
	return ""
}
