package spec_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/agent/internal/spec"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
)

// A namespace is the container's own, another container's or the VM's; other paths are refused by the field's name.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	const old = "bulkhead.container:old"
	for name, tc := range map[string]struct {
		namespace string
		want      string // in the specification
		says      string
		err       error
	}{
		"own":                {`{"type":"pid"}`, `{"type":"pid"}`, "", nil},
		"another's":          {`{"type":"pid","path":"` + old + `"}`, `{"type":"pid","path":"/proc/7/ns/pid"}`, "", nil},
		"another's IPC":      {`{"type":"ipc","path":"` + old + `"}`, `{"type":"ipc","path":"/proc/7/ns/ipc"}`, "", nil},
		"the pod's":          {`{"type":"pid","path":"bulkhead.pod"}`, `{"type":"pid","path":"/proc/1/ns/pid"}`, "", nil},
		"the pod's IPC":      {`{"type":"ipc","path":"bulkhead.pod"}`, "", "", nil},
		"the VM's network":   {`{"type":"network"}`, "", "", nil},
		"of a deleted one":   {`{"type":"pid","path":"bulkhead.container:gone"}`, "", `"pid"`, errdefs.ErrNotFound},
		"a path":             {`{"type":"pid","path":"/proc/1/ns/pid"}`, "", `"pid": path "/proc/1/ns/pid"`, errdefs.ErrNotImplemented},
		"a path of UTS":      {`{"type":"uts","path":"/proc/1/ns/uts"}`, "", `"uts": path "/proc/1/ns/uts"`, errdefs.ErrNotImplemented},
		"a user namespace":   {`{"type":"user"}`, "", `linux.namespaces: type "user"`, errdefs.ErrNotImplemented},
		"another's users":    {`{"type":"user","path":"` + old + `"}`, "", `linux.namespaces: type "user"`, errdefs.ErrNotImplemented},
		"a clock of its own": {`{"type":"time"}`, "", `linux.namespaces: type "time"`, errdefs.ErrNotImplemented},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := spec.Parse(json.RawMessage(`{"process":{"args":["a"]},"linux":{"namespaces":[` + tc.namespace + `]}}`))
			if err != nil {
				t.Fatal(err)
			}
			var volumes []containerv1.Mount
			m := provided(&volumes)
			m.Join = func(kind, target string) (string, error) {
				switch target {
				case "old":
					return "/proc/7/ns/" + kind, nil
				case "":
					return "/proc/1/ns/" + kind, nil
				}
				return "", errdefs.ErrNotFound
			}
			if err := s.Adjust(m, false); !errors.Is(err, tc.err) || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Fatalf("error %v, want %v that says %s", err, tc.err, tc.says)
			}
			if tc.err != nil {
				return
			}
			raw, err := s.Encode()
			want := `"namespaces":[` + strings.Trim(`{"type":"mount"},`+tc.want, ",") + `]`
			if err != nil || !strings.Contains(string(raw), want) {
				t.Errorf("%s, %v; want %s", raw, err, want)
			}
		})
	}
}

func TestLastWords(t *testing.T) {
	t.Parallel()
	s, err := spec.Parse(json.RawMessage(`{"process":{"args":["a"]},"mounts":[{"destination":"/v/../words","type":"bulkhead.termination"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	var volumes []containerv1.Mount
	m := provided(&volumes)
	m.Last = "/last"
	if err := s.Adjust(m, false); err != nil {
		t.Fatal(err)
	}
	raw, err := s.Encode()
	if err != nil || !strings.Contains(string(raw), `{"destination":"/words","type":"bind","source":"/last","options":["bind","rw"]}`) ||
		s.LastAt != "/words" {
		t.Errorf("%s at %q, %v", raw, s.LastAt, err)
	}
}
