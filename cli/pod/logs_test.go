package pod

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

func TestLogsFlags(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tc := range []struct {
		args string
		want api.LogOptions
		err  string
	}{
		{args: "", want: api.LogOptions{Tail: -1}},
		{args: "--tail 3 -f -p", want: api.LogOptions{Tail: 3, Follow: true, Previous: true}},
		{args: "--since 90s", want: api.LogOptions{Tail: -1, Since: now.Add(-90 * time.Second)}},
		{args: "--since-time 2026-01-02T04:00:00+01:00", want: api.LogOptions{Tail: -1, Since: time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)}},
		{args: "--since 1s --since-time 2026-01-02T03:00:00Z", err: "either"},
		{args: "--since 0s", err: "greater than 0"},
		{args: "--since-time yesterday", err: "as 2026-01-02T15:04:05Z"},
		{args: "--tail -2", err: "-1 for all"},
		{args: "--all-containers -c x", err: "either a container"},
	} {
		o, f := api.LogOptions{}, logsFlags{}
		cmd := &cobra.Command{}
		f.add(cmd, &o)
		err := cmd.ParseFlags(strings.Fields(tc.args))
		if err == nil {
			err = f.apply(cmd, &o, now)
		}
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%q: %v", tc.args, err)
			}
			continue
		}
		if diff := cmp.Diff(tc.want, o); err != nil || diff != "" {
			t.Errorf("%q: %v, %s", tc.args, err, diff)
		}
	}
}
