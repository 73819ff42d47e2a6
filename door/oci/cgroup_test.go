package oci

import "testing"

// TestScopeOf: the parts of a path of systemd's name a slice and a scope, with runc's rules.
func TestScopeOf(t *testing.T) {
	for text, want := range map[string]string{
		"machine.slice:libpod:abc": "machine.slice libpod-abc.scope",
		":docker:abc":              "system.slice docker-abc.scope",
		"a-b.slice::abc":           "a-b.slice abc.scope",
		"":                         "system.slice bulkhead-id.scope",
		"/machine/abc":             "",
		"machine.slice:libpod:":    "",
		"machine:libpod:abc":       "",
		"a.slice:../x:abc":         "",
		"a.slice:b:c:d":            "",
	} {
		s, err := scopeOf(text, "id")
		got := ""
		if err == nil {
			got = s.Slice + " " + s.Name
		}
		if got != want {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
}
