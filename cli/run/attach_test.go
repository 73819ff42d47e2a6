package run

import (
	"bytes"
	"cmp"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/podlog"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// TestMissedOutput: output from before the terminal was attached comes from the log. Later output is printed once.
func TestMissedOutput(t *testing.T) {
	joined := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tc := range []struct {
		name  string
		live  string // output of the terminal, after the log if late is set
		late  bool
		log   []api.Log
		want  string // from the log
		shows string // from the terminal, if it is not all
	}{
		{
			name: "all by the terminal",
			live: "a\r\nb\r\n",
			log:  []api.Log{{Data: []byte("a\r\n"), Time: joined}, {Data: []byte("b\r\n"), Time: joined}},
		},
		{name: "all before", log: []api.Log{{Data: []byte("a\r\n"), Time: joined.Add(-1)}}, want: "a\r\n"},
		{
			name: "both",
			live: "b\r\n",
			log:  []api.Log{{Data: []byte("a\r\n"), Time: joined.Add(-1)}, {Data: []byte("b\r\n"), Time: joined}},
			want: "a\r\n",
		},
		{
			name: "logged after, not shown by the terminal",
			live: "b\r\n",
			log:  []api.Log{{Data: []byte("a\r\n"), Time: joined}, {Data: []byte("b\r\n"), Time: joined}},
			want: "a\r\n",
		},
		{
			name: "by both",
			live: "a\r\nb\r\n",
			log:  []api.Log{{Data: []byte("a\r\n"), Time: joined.Add(-1)}, {Data: []byte("b\r\n"), Time: joined}},
		},
		{
			name: "by both, and first by the log",
			live: "a\r\nb\r\n", late: true,
			log:  []api.Log{{Data: []byte("a\r\n"), Time: joined.Add(-1)}, {Data: []byte("b\r\n"), Time: joined}},
			want: "a\r\n", shows: "b\r\n",
		},
		{name: "a last line without an end", live: "ab", log: []api.Log{{Data: []byte("ab\n"), Time: joined}}},
		{name: "another container's", live: "a", log: []api.Log{{Data: []byte("x\n"), Time: joined.Add(-1), Container: "other"}}},
	} {
		var out, live bytes.Buffer
		at := &attachment{tty: true, asked: joined.Add(-2), since: joined, ended: make(chan error, 1), out: &live}
		at.ended <- app.ExitError(3)
		r := &runner{app: &app.App{Out: &out}, printer: podlog.New(&out, &out), attached: at}
		show := func() {
			if _, err := at.Write([]byte(tc.live)); err != nil {
				t.Fatal(err)
			}
		}
		if !tc.late {
			show()
		}
		for _, l := range tc.log {
			if err := r.log(l); err != nil {
				t.Fatal(err)
			}
		}
		if tc.late {
			show()
		}
		if err := r.awaitSession(func() {}); err != nil || out.String() != tc.want {
			t.Errorf("%s: %q, want %q (%v)", tc.name, out.String(), tc.want, err)
		}
		if want := cmp.Or(tc.shows, tc.live); live.String() != want {
			t.Errorf("%s: the terminal shows %q, want %q", tc.name, live.String(), want)
		}
	}
}
