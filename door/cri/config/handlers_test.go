package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseHandlers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		texts []string
		want  map[string]Handler
		err   string
	}{
		{want: map[string]Handler{}},
		{texts: []string{"a", "b-2=cold"}, want: map[string]Handler{"a": {}, "b-2": {Cold: true}}},
		{texts: []string{"a=no-fork,kvm"}, want: map[string]Handler{"a": {NoFork: true, Accel: "kvm"}}},
		{texts: []string{"a=tcg,cold,tcg"}, want: map[string]Handler{"a": {Cold: true, Accel: "tcg"}}},
		{texts: []string{"a=kvm,tcg"}, err: `option "tcg"`},
		{texts: []string{"a="}, err: `option ""`},
		{texts: []string{"a=hot"}, err: `option "hot"`},
		{texts: []string{"a", "a=cold"}, err: "used twice"},
		{texts: []string{""}, err: "its name"},
		{texts: []string{"=cold"}, err: "its name"},
		{texts: []string{"A"}, err: "its name"},
		{texts: []string{"a b"}, err: "its name"},
		{texts: []string{strings.Repeat("a", 64)}, err: "its name"},
	} {
		got, err := ParseHandlers(tc.texts)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%q: %v, want %s", tc.texts, err, tc.err)
			}
			continue
		}
		if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
			t.Errorf("%q: %v, %s", tc.texts, err, diff)
		}
	}
}
