package probe

import (
	"context"
	"strings"
	"testing"
	"time"
)

// TestStable: the same failure has the same text each time.
func TestStable(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	for _, test := range []struct{ text, want string }{
		{"exec " + id[:32] + " in container " + id + ": executable not found", "exec … in container …: executable not found"},
		{"read tcp 10.0.2.2:43210->10.0.2.15:80: connection reset", "read tcp ->10.0.2.15:80: connection reset"},
		{"read tcp [fd00::2]:43210->[fd00::15]:80: connection reset", "read tcp ->[fd00::15]:80: connection reset"},
		{"image a@sha256:" + id + " is present", "image a@sha256:" + id + " is present"},
		{"pod web_default(6e1f0c35-9a2b-4e6f-8c1d-0a1b2c3d4e5f)", "pod web_default(6e1f0c35-9a2b-4e6f-8c1d-0a1b2c3d4e5f)"},
		{"commit 0123456789 is at 10.0.2.2:80", "commit 0123456789 is at 10.0.2.2:80"},
	} {
		if got := Stable(test.text); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
	for left, want := range map[time.Duration]time.Duration{
		960 * time.Millisecond: time.Second, 2990 * time.Millisecond: 3 * time.Second, 99 * time.Millisecond: 100 * time.Millisecond,
	} {
		if got := rounded(left); got != want {
			t.Errorf("%v: %v, want %v", left, got, want)
		}
	}
}

// TestFailuresAreToldAlike: reports of commands that cannot be run, and of failing probes, do not contain the ids of
// the attempt.
func TestFailuresAreToldAlike(t *testing.T) {
	var told []string
	for _, id := range []string{strings.Repeat("0a", 16), strings.Repeat("1b", 16)} {
		_, output, _ := Exec(t.Context(), notRunnable(id), "c", []string{"x"}, time.Second)
		told = append(told, output)
	}
	if told[0] != told[1] || !strings.Contains(told[0], "no such file") {
		t.Errorf("events %q", told)
	}
}

// notRunnable is a runtime that cannot run a command. Its message contains the id of the attempt.
type notRunnable string

func (n notRunnable) ExecSync(context.Context, string, []string, time.Duration) (stdout, stderr []byte, err error) {
	return nil, []byte("exec " + string(n) + ": no such file\n"), exitError(127)
}

type exitError int

func (e exitError) Error() string   { return "exit" }
func (e exitError) Exited() bool    { return true }
func (e exitError) ExitStatus() int { return int(e) }
