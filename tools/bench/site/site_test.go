package site

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/pod/podapi"
)

func TestManifests(t *testing.T) {
	all := Manifest("one", "localhost/x:y", "sh", "-c", `echo "a: b"`) + WithScratch("two", "localhost/x:y", "/scratch", "sleep", "1")
	pods, err := podapi.Decode("test", []byte(all))
	if err != nil {
		t.Fatal(err)
	}
	if len(pods) != 2 {
		t.Fatalf("%d pods", len(pods))
	}
	if diff := cmp.Diff([]string{"sh", "-c", `echo "a: b"`}, pods[0].Spec.Containers[0].Command); diff != "" {
		t.Error(diff)
	}
	if len(pods[0].Spec.Volumes) != 0 || len(pods[1].Spec.Volumes) != 1 || pods[1].Spec.Containers[0].VolumeMounts[0].MountPath != "/scratch" {
		t.Errorf("volumes: %+v", pods)
	}
}

func TestTime(t *testing.T) {
	r, err := Time(exec.CommandContext(t.Context(), "sh", "-c", "echo out; echo err >&2; exit 3"), nil)
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(err.Error(), "err") {
		t.Errorf("error %v", err)
	}
	if r.Out != "out\n" || r.Stderr != "err\n" || r.Took <= 0 {
		t.Errorf("%+v", r)
	}
	// Processes that keep the output open do not delay it.
	r, err = Time(exec.CommandContext(t.Context(), "sh", "-c", "sleep 5 & echo $!"), nil)
	if err != nil || r.Took.Seconds() > 4 {
		t.Errorf("%+v, %v", r, err)
	}
	if err := exec.Command("kill", strings.TrimSpace(r.Out)).Run(); err != nil {
		t.Error(err)
	}
}

func TestNames(t *testing.T) {
	if diff := cmp.Diff([]string{"p1", "p2"}, Names("p", 2)); diff != "" {
		t.Error(diff)
	}
}

// TestCloseOfNothing closes a site that never ran anything.
func TestCloseOfNothing(t *testing.T) {
	s, err := Open(Options{Bin: "/nowhere", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if left, err := s.Close(t.Context()); err != nil || len(left) != 0 {
		t.Errorf("left %v: %v", left, err)
	}
}
