package spec_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/agent/internal/spec"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
)

// A PID namespace is the container's own or another container's; other paths are refused.
func TestPIDNamespaces(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		namespace string
		want      string // in the specification
		err       error
	}{
		"own":             {`{"type":"pid"}`, `{"type":"pid"}`, nil},
		"another's":       {`{"type":"pid","path":"bulkhead.container:old"}`, `{"type":"pid","path":"/proc/7/ns/pid"}`, nil},
		"of what is gone": {`{"type":"pid","path":"bulkhead.container:gone"}`, "", agentv1.ErrNotFound},
		"a path":          {`{"type":"pid","path":"/proc/1/ns/pid"}`, "", agentv1.ErrUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := spec.Parse(json.RawMessage(`{"process":{"args":["a"]},"linux":{"namespaces":[` + tc.namespace + `]}}`))
			if err != nil {
				t.Fatal(err)
			}
			var volumes []containerv1.Mount
			m := provided(&volumes)
			m.PIDs = func(target string) (string, error) {
				if target != "old" {
					return "", agentv1.ErrNotFound
				}
				return "/proc/7/ns/pid", nil
			}
			if err := s.Adjust(m, false); !errors.Is(err, tc.err) {
				t.Fatalf("error %v, want %v", err, tc.err)
			}
			if tc.err != nil {
				return
			}
			raw, err := s.Encode()
			if err != nil || !strings.Contains(string(raw), tc.want) {
				t.Errorf("%s, %v", raw, err)
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
