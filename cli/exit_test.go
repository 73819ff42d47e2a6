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
		{name: "a container's own code", cmd: run, err: app.ExitError(7), code: 7},
		{name: "an error of run", cmd: run, err: errors.New("x"), code: 125, want: "bulkhead: x\n"},
		{name: "an error", cmd: ps, err: fmt.Errorf("x: %w", errors.New("y\nz")), code: 1, want: "bulkhead: x: y z\n"},
		{
			name: "errors of several pods",
			cmd:  ps,
			err:  errors.Join(errors.New("a"), errors.New("b")),
			code: 1,
			want: "bulkhead: a\nbulkhead: b\n",
		},
		{
			name: "an error with two causes",
			cmd:  ps,
			err:  fmt.Errorf("%w: %w", errors.New("a"), errors.New("b")),
			code: 1,
			want: "bulkhead: a: b\n",
		},
		{
			name: "a missing command",
			cmd:  run,
			err:  &api.Error{Message: "crun exec: no x: command ended with exit code 127", ExitCode: 127},
			code: 127,
			want: "bulkhead: no x\n",
		},
		{
			name: "more is there",
			cmd:  ps,
			err:  detailed,
			code: 1,
			want: "bulkhead: no start\n(run it again with --detail for more; bulkhead check tests this host)\n",
		},
		{name: "more is wanted", cmd: ps, err: detailed, detail: true, code: 1, want: "bulkhead: no start\n--- console ---\npanic\n"},
	} {
		var w bytes.Buffer
		a := &app.App{Err: &w, Detail: tc.detail}
		if code := exit(a, tc.cmd, tc.err); code != tc.code || w.String() != tc.want {
			t.Errorf("%s: exit code %d, %q", tc.name, code, w.String())
		}
	}
}
