package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// TestArgs: another program has the same of the arguments.
func TestArgs(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"nothing": nil,
		"all":     {"--listen", "unix:///tmp/a b.sock", "--kubelet-root=/k", "--log-dir", "/l", "--log-dir=/m"},
	} {
		first := parse(t, args)
		if diff := cmp.Diff(first, parse(t, first.Args())); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func parse(t *testing.T, args []string) (c Config) {
	t.Helper()
	f := pflag.NewFlagSet("cri", pflag.ContinueOnError)
	c.Add(f)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestSocket(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]string{
		"unix:///run/cri.sock": "/run/cri.sock",
		"/run/cri.sock":        "",
		"unix://run/cri.sock":  "",
		"tcp://127.0.0.1:1":    "",
		"":                     "",
	} {
		c := Config{Listen: listen, Kubelet: "/k"}
		if got, err := c.Socket(); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", listen, got, err)
		}
	}
	c := Config{Listen: "unix:///s", Kubelet: "k"}
	if _, err := c.Socket(); err == nil {
		t.Error("a directory that is not absolute")
	}
}
