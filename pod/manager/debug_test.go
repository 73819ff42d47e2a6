package manager

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
)

// TestDebugIsWrittenDownOnce: a container is saved once, even if the pod's status does not show it yet.
func TestDebugIsWrittenDownOnce(t *testing.T) {
	t.Parallel()
	e := notRun(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	one := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "x", Image: "a"}}
	if err := e.Debug(ctx, one, runtimev1.Size{}); !errors.Is(err, context.Canceled) {
		t.Errorf("the first: %v", err)
	}
	if err := e.Debug(ctx, one, runtimev1.Size{}); !errors.Is(err, errdefs.ErrAlreadyExists) {
		t.Errorf("the second: %v", err)
	}
	var stored Record
	if err := atomicfile.ReadJSON(filepath.Join(e.dir, recordFile), &stored); err != nil {
		t.Fatal(err)
	}
	if n := len(stored.Ephemeral); n != 1 {
		t.Errorf("saved %d times", n)
	}
	// After a failed save, the container may be added again.
	dir := e.dir
	e.dir = filepath.Join(dir, "none")
	two := one
	two.Name = "y"
	if err := e.Debug(ctx, two, runtimev1.Size{}); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("without a directory: %v", err)
	}
	e.dir = dir
	if err := e.Debug(ctx, two, runtimev1.Size{}); !errors.Is(err, context.Canceled) {
		t.Errorf("again: %v", err)
	}
}
