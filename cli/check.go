package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/check"
)

func (a *app) checkCmd() *cobra.Command {
	var f format
	var fresh bool
	cmd := &cobra.Command{
		Use:        "check",
		Short:      "Find out what this machine can do for pods, and what would help",
		SuggestFor: []string{"info"},
		Long: `Find out what this machine can do for pods. Every line is tried, not assumed: a
guest is really booted, a network really made. A warning says what pods have to
do without; pods cannot run only where a line fails, and the exit code is then 1.

Whether KVM works is remembered until the host's next boot; --probe tries again.`,
		Example: `  bulkhead check
  bulkhead check --probe
  bulkhead check -o json | jq -r '.[] | select(.status != "ok") | .remedy'`,
		Args: atMost(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.valid(); err != nil {
				return err
			}
			probes := check.Probes(check.Options{Roots: a.roots, Fresh: fresh})
			t := newFindings(a.out, probes)
			found := []check.Finding{}
			able, err := check.Run(cmd.Context(), probes, func(one check.Finding) {
				found = append(found, one)
				if f == "" {
					t.print(one, a.detail)
				}
			})
			if err != nil {
				return fmt.Errorf("check: %w", err)
			}
			if f != "" {
				if err := a.show(cmd.Context(), f, found, views{}); err != nil {
					return err
				}
			}
			if !able {
				return errors.New("pods cannot run here: see what fails, and its remedy (-->)")
			}
			return nil
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&fresh, "probe", false, "probe KVM again instead of believing what was found since the host's last boot")
	return cmd
}

// findings prints each finding as it comes: its name, its status, and under
// one another reason and remedy, folded to the terminal's width.
type findings struct {
	w      io.Writer
	colour bool
	width  int // of the terminal, 0 for none
	name   int // of the longest name
}

func newFindings(w io.Writer, probes []check.Probe) *findings {
	t := &findings{w: w, colour: colours(w), width: terminalWidth(w)}
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
	fmt.Fprintf(t.w, "%-*s  %s  %s\n", t.name, f.Check, status, fold(f.Reason, t.width, indent))
	margin := strings.Repeat(" ", indent)
	if f.Remedy != "" {
		fmt.Fprintf(t.w, "%s--> %s\n", margin, fold(f.Remedy, t.width, indent+4))
	}
	if detail && f.Detail != "" {
		fmt.Fprintln(t.w, strings.TrimRight(f.Detail, "\n"))
	}
}

// fold breaks text between words into lines of a terminal so wide, each after
// the first with an indentation. Width 0 breaks nothing.
func fold(text string, width, indent int) string {
	room := width - indent
	if room < 20 {
		return text
	}
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		n := len([]rune(word))
		switch {
		case i == 0:
		case column+1+n > room:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}
