package cri

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/critest"
	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
)

// fileOps: a program with one of every file operation gets the same results in a shared host directory as on the host
// itself.
func fileOps(ctx context.Context, t *testing.T, n *node) {
	tools, here, there := t.TempDir(), t.TempDir(), t.TempDir()
	program := filepath.Join(tools, "fileops")
	build := testgo.Command(ctx, "build", "-o", program, "./testdata/fileops")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.CommandContext(ctx, program, here).Output()
	if err != nil {
		t.Fatal(err)
	}
	// A guest cannot create devices or set-user-ID programs.
	want := strings.NewReplacer("device: false", "device: true", " 104755 ", " 100755 ").Replace(string(out))
	config := critest.Pod("fileops")
	id := n.sleeper(ctx, t, n.podOf(ctx, t, config), "c", config, mounting(
		&runtimeapi.Mount{ContainerPath: "/tools", HostPath: tools, Readonly: true}, &runtimeapi.Mount{ContainerPath: "/d", HostPath: there},
	))
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(n.Sh(ctx, t, id, "/tools/fileops /d"), "\n")); diff != "" {
		t.Error(diff)
	}
}
