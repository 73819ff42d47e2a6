package cli

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

func TestExit(t *testing.T) {
	run, ps := &cobra.Command{Use: "run"}, &cobra.Command{Use: "ps"}
	detailed := &api.Error{Message: "no start", Detail: "--- console ---\npanic\n"}
	for _, tc := range []struct {
		name   string
		cmd    *cobra.Command
		err    error
		detail bool
		code   int
		want   string
	}{
		{"a container's own code", run, app.ExitError(7), false, 7, ""},
		{"an error of run", run, errors.New("x"), false, 125, "bulkhead: x\n"},
		{"an error", ps, fmt.Errorf("x: %w", errors.New("y\nz")), false, 1, "bulkhead: x: y z\n"},
		{"errors of several pods", ps, errors.Join(errors.New("a"), errors.New("b")), false, 1, "bulkhead: a\nbulkhead: b\n"},
		{"an error with two causes", ps, fmt.Errorf("%w: %w", errors.New("a"), errors.New("b")), false, 1, "bulkhead: a: b\n"},
		{"a missing command", run, &api.Error{Message: "crun exec: no x: command ended with exit code 127", ExitCode: 127}, false, 127, "bulkhead: no x\n"},
		{"more is there", ps, detailed, false, 1, "bulkhead: no start\n(again with --detail for more; bulkhead check looks for what this machine lacks)\n"},
		{"more is wanted", ps, detailed, true, 1, "bulkhead: no start\n--- console ---\npanic\n"},
	} {
		var w bytes.Buffer
		a := &app.App{Err: &w, Detail: tc.detail}
		if code := exit(a, tc.cmd, tc.err); code != tc.code || w.String() != tc.want {
			t.Errorf("%s: exit code %d, %q", tc.name, code, w.String())
		}
	}
}
