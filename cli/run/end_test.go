package run

import (
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

func TestEndText(t *testing.T) {
	for _, tc := range []struct{ name, got, want string }{
		{"an end that its code explains", endText(api.Ended{Reason: "Error", Message: "c: x"}), ""},
		{"an end that it does not", endText(api.Ended{Reason: "OOMKilled", Message: "c: over its limit"}), "OOMKilled: c: over its limit"},
		{"a reason alone", endText(api.Ended{Reason: "VMKilled"}), "VMKilled"},
		{
			"a container that cannot run",
			endText(api.Ended{
				Reason:  "StartError",
				Message: "c: create container c4a9d8e8ab0b: crun create: open executable: Permission denied",
			}),
			"container c cannot be run: open executable: Permission denied (check its command and the files of its image)",
		},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, tc.got, tc.want)
		}
	}
}

func TestPrintTimings(t *testing.T) {
	var out strings.Builder
	printTimings(&out, api.Started{VM: "cloned, not forked: \x1b[1m", Phases: []api.Phase{{Name: "total", Microseconds: 12345}}})
	const how = "bulkhead: VM: cloned, not forked: "
	if s := out.String(); !strings.HasPrefix(s, how) || strings.Contains(s, "\x1b") || !strings.HasSuffix(s, "\n     12.3 ms  total\n") {
		t.Errorf("%q", s)
	}
	out.Reset()
	if printTimings(&out, api.Started{}); out.String() != "" {
		t.Errorf("%q of an engine that does not say", out.String())
	}
}
