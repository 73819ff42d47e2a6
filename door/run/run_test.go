package run

import (
	"errors"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/engine"
)

// TestHoldStarted checks that messages of starts are held back until all are sent, and that other messages are sent at
// once.
func TestHoldStarted(t *testing.T) {
	t.Parallel()
	var sent []string
	gone := errors.New("the client is gone")
	var fail error
	but, all := holdStarted(func(m api.Message) error {
		if m.Started != nil {
			sent = append(sent, m.Started.Pod.Name)
		}
		sent = append(sent, m.Notice)
		return fail
	})
	for _, m := range []api.Message{
		{Started: &api.Started{Pod: api.Pod{Name: "a"}}}, {Notice: "meanwhile"}, {Started: &api.Started{Pod: api.Pod{Name: "b"}}},
	} {
		if err := but(m); err != nil {
			t.Error(err)
		}
	}
	if got := strings.Join(sent, " "); got != "meanwhile" {
		t.Errorf("messages before all(): got %q, want %q", got, "meanwhile")
	}
	if err := all(); err != nil || strings.Join(sent, " ") != "meanwhile a  b " {
		t.Errorf("messages after all(): got %q, error %v, want %q, no error", strings.Join(sent, " "), err, "meanwhile a  b ")
	}
	if fail = gone; !errors.Is(all(), gone) || !errors.Is(but(api.Message{Notice: "x"}), gone) {
		t.Errorf("after the client disconnected: got another error or none, want %v", gone)
	}
}

func TestMadeHow(t *testing.T) {
	for want, f := range map[string]engine.Facts{
		"forked":                   {Clone: true, Forked: true},
		"cloned":                   {Clone: true},
		"cloned, not forked: late": {Clone: true, ForkNote: "late"},
		"booted":                   {},
	} {
		if got := madeHow(&f); got != want {
			t.Errorf("%q instead of %q", got, want)
		}
	}
}
