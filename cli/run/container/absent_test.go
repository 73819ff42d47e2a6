package container

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestDocumented: docs/run.md has each flag for images, and for unsupported flags the reason.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/run.md")
	if err != nil {
		t.Fatal(err)
	}
	var f Flags
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	f.Add(flags)
	flags.VisitAll(func(flag *pflag.Flag) {
		why, _ := flag.Value.(absent)
		for line := range strings.Lines(string(page)) {
			if strings.HasPrefix(line, "|") && strings.Contains(line, "`--"+flag.Name+"`") && strings.Contains(line, string(why)) {
				return
			}
		}
		t.Errorf("docs/run.md has no row for --%s with %q", flag.Name, why)
	})
}

// TestAbsent: an unsupported flag of podman reports why, with or without a value.
func TestAbsent(t *testing.T) {
	for _, line := range [][]string{
		{"a pod is a VM", "--userns=keep-id", "busybox"}, {"a pod is a VM", "--userns", "keep-id", "busybox"},
		{"remove the pod first", "--replace", "busybox"}, {"registries.conf", "--tls-verify=false", "busybox"},
	} {
		if _, err := described(t, line[1:]...); err == nil || !strings.Contains(err.Error(), line[0]) {
			t.Errorf("%v: %v", line, err)
		}
	}
}
