package session

import (
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
)

// TestLateFlags: kubectl users put flags between the pod and --.
func TestLateFlags(t *testing.T) {
	for _, tc := range []struct{ args, command, container, err string }{
		{args: "web ls -l", command: "ls -l"},
		{args: "web -- ls -- -l", command: "ls -- -l"},
		{args: "web ls -- -l", command: "ls -- -l"},
		{args: "web -it -c app -- sh -c x", command: "sh -c x", container: "app"},
		{args: "-i web --container=app -t -- sh", command: "sh", container: "app"},
		{args: "web -c app sh", err: "-c comes after the pod: put it before the pod, or -- before the command"},
		{args: "web -c app sh -- x", err: `"sh" must come after --`},
		{args: "web --nosuch -- x", err: "unknown flag: --nosuch"},
		{args: "web -it --", command: ""},
	} {
		cmd := Exec(&app.App{})
		err := cmd.ParseFlags(strings.Fields(tc.args))
		if err != nil {
			t.Fatal(err)
		}
		command, err := lateFlags(cmd, cmd.Flags().Args()[1:])
		if got := strings.Join(command, " "); got != tc.command || (err != nil) != (tc.err != "") ||
			err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %q, %v", tc.args, got, err)
		}
		if got := cmd.Flag("container").Value.String(); err == nil && got != tc.container {
			t.Errorf("%s: container %q", tc.args, got)
		}
	}
}
