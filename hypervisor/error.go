package hypervisor

import (
	"fmt"
	"strings"

	"github.com/bulkhead-project/bulkhead/internal/printable"
	"github.com/bulkhead-project/bulkhead/internal/tail"
)

// Error is a failure of a VM. Its message is one line; Detail has more.
type Error struct {
	// Phase is the phase that the VM had reached: "spawn", "connect", "restore", "run", "save" or "end".
	Phase string
	// Op is the operation that failed.
	Op string
	// Stderr and Console are the last lines of each, possibly empty. They are untrusted: they come from the guest, or
	// from a process that the guest may have taken over.
	Stderr, Console string
	Err             error
}

func (e *Error) Error() string {
	msg := fmt.Sprintf("%s (%s): %v", e.Op, e.Phase, e.Err)
	if line := printableLine(tail.Line(e.Stderr)); line != "" {
		msg += ": " + line
	}
	return msg
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Detail returns the end of the process's stderr and of the guest's console.
func (e *Error) Detail() string {
	var b strings.Builder
	for _, part := range []struct{ name, text string }{{"stderr", e.Stderr}, {"console", e.Console}} {
		if part.text != "" {
			fmt.Fprintf(&b, "--- %s ---\n%s\n", part.name, part.text)
		}
	}
	return b.String()
}

// Printable makes hostile text safe for a terminal, as printable.Text does. It drops a serial line's CR before LF.
func Printable(text string) string { return printable.Text(strings.ReplaceAll(text, "\r\n", "\n")) }

// printableLine returns a line of hostile text for a message, at most 300 bytes long.
func printableLine(line string) string {
	line = strings.ReplaceAll(Printable(line), "\t", " ")
	if len(line) > 300 {
		line = line[:300] + "…"
	}
	return line
}
