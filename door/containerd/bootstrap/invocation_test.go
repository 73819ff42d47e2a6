package bootstrap

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	common := []string{"-namespace", "k8s.io", "-address", "/run/c.sock", "-publish-binary", "/usr/bin/containerd", "-id", "c1"}
	base := Invocation{Namespace: "k8s.io", Address: "/run/c.sock", Publish: "/usr/bin/containerd", ID: "c1"}
	for name, test := range map[string]struct {
		args []string
		want func(*Invocation)
	}{
		"start":            {append(common[:8:8], "start"), func(i *Invocation) { i.Action = Start }},
		"start with debug": {append(common[:8:8], "-debug", "start"), func(i *Invocation) { i.Action, i.Debug = Start, true }},
		"delete": {
			append(common[:8:8], "-bundle", "/b", "delete"),
			func(i *Invocation) { i.Action, i.Bundle = Delete, "/b" },
		},
		"serve": {append(common[:8:8], "-socket", "/s"), func(i *Invocation) { i.Socket = "/s" }},
	} {
		want := base
		test.want(&want)
		got, err := Parse(test.args)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, args := range [][]string{{"-v"}, {"-version"}, {"-info"}} {
		if got, err := Parse(args); err != nil || !got.Version && !got.Info {
			t.Errorf("%v: got %+v, %v", args, got, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for name, args := range map[string][]string{
		"an unknown flag":   {"-new", "start"},
		"an unknown action": {"-namespace", "n", "-id", "c", "restart"},
		"no namespace":      {"-id", "c", "start"},
		"no id":             {"-namespace", "n", "start"},
		"a path as id":      {"-namespace", "n", "-id", "../c", "start"},
		"a long id":         {"-namespace", "n", "-id", strings.Repeat("c", longestID+1), "start"},
		"a slash":           {"-namespace", "a/b", "-id", "c", "start"},
	} {
		if got, err := Parse(args); !errors.Is(err, ErrUsage) {
			t.Errorf("%s: got %+v, %v, want ErrUsage", name, got, err)
		}
	}
}

// TestArgs: a front parses the arguments that its starter gives it.
func TestArgs(t *testing.T) {
	want := Invocation{Namespace: "n", ID: "c", Address: "/a", Publish: "/p", Socket: "/s", Debug: true}
	got, err := Parse(want.Args())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
