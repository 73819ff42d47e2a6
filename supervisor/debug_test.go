package supervisor

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	internalapi "k8s.io/cri-api/pkg/apis"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/pod"
)

// TestDebugIsWrittenDownOnce: also when the pod does not tell yet of the first.
func TestDebugIsWrittenDownOnce(t *testing.T) {
	t.Parallel()
	spec := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u-1"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
	}
	p, err := pod.New(pod.Options{Pod: spec, Runtime: struct{ internalapi.RuntimeService }{}, Images: struct {
		internalapi.ImageManagerService
	}{}})
	if err != nil {
		t.Fatal(err)
	}
	e := &entry{dir: t.TempDir(), p: p, rec: record{Pod: spec}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	one := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "x", Image: "a"}}
	if err := e.debug(ctx, one); !errors.Is(err, context.Canceled) {
		t.Errorf("the first: %v", err)
	}
	if err := e.debug(ctx, one); !errors.Is(err, pod.ErrName) {
		t.Errorf("the second: %v", err)
	}
	var stored record
	if err := atomicfile.ReadJSON(filepath.Join(e.dir, recordFile), &stored); err != nil {
		t.Fatal(err)
	}
	if n := len(stored.Ephemeral); n != 1 {
		t.Errorf("written down %d times", n)
	}
	// What cannot be written down may be asked for again.
	dir := e.dir
	e.dir = filepath.Join(dir, "none")
	two := one
	two.Name = "y"
	if err := e.debug(ctx, two); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("without a directory: %v", err)
	}
	e.dir = dir
	if err := e.debug(ctx, two); !errors.Is(err, context.Canceled) {
		t.Errorf("again: %v", err)
	}
}
