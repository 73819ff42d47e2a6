package host

import (
	"fmt"
	"io"
	"strings"

	"github.com/bulkhead-project/bulkhead/check"
	"github.com/bulkhead-project/bulkhead/cli/internal/text"
	"github.com/bulkhead-project/bulkhead/cli/internal/tty"
)

// findings prints each finding when it arrives: name, status, reason and remedy, folded to the terminal's width.
type findings struct {
	w      io.Writer
	colour bool
	width  int // of the terminal, 0 for none
	name   int // of the longest name
}

func newFindings(w io.Writer, probes []check.Probe) *findings {
	t := &findings{w: w, colour: tty.Colours(w), width: tty.Width(w)}
	for _, p := range probes {
		t.name = max(t.name, len(p.Name))
	}
	return t
}

var statusColour = map[check.Status]string{check.OK: "32", check.Warn: "33", check.Fail: "31;1"}

func (t *findings) print(f check.Finding, detail bool) {
	status := fmt.Sprintf("%-4s", f.Status)
	if t.colour {
		status = "\x1b[" + statusColour[f.Status] + "m" + status + "\x1b[0m"
	}
	indent := t.name + 2 + 4 + 2
	fmt.Fprintf(t.w, "%-*s  %s  %s\n", t.name, f.Check, status, text.Fold(f.Reason, t.width, indent))
	margin := strings.Repeat(" ", indent)
	if f.Remedy != "" {
		fmt.Fprintf(t.w, "%s--> %s\n", margin, text.Fold(f.Remedy, t.width, indent+4))
	}
	if detail && f.Detail != "" {
		fmt.Fprintln(t.w, strings.TrimRight(f.Detail, "\n"))
	}
}
