package engine_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/sandbox"
)

// TestAnnotationsOfTheEngineWin checks that a user's annotations cannot replace the engine's own. All others are
// passed on, and the request does not change.
func TestAnnotationsOfTheEngineWin(t *testing.T) {
	w := enginetest.New()
	e := enginetest.Open(t, w.In(enginetest.Options(t, enginetest.Roots(t))))
	request := podRequest("p")
	request.Identity.Annotations = map[string]string{
		"io.kubernetes.cri.sandbox-id": "forged", "io.kubernetes.cri.container-type": "container",
		"io.kubernetes.cri.sandbox-uid": "forged", "example.org/mine": "kept",
	}
	id, err := e.StartPod(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	var c sandbox.Config
	if err := json.Unmarshal(w.Shim(e.StateDir(id)).Config(), &c); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"io.kubernetes.cri.sandbox-id": id, "io.kubernetes.cri.container-type": "sandbox",
		"io.kubernetes.cri.sandbox-uid": "uid-p", "io.kubernetes.cri.sandbox-name": "p",
		"io.kubernetes.cri.sandbox-namespace": "default", "example.org/mine": "kept",
	} {
		if got := c.Annotations[key]; got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	if request.Identity.Annotations["io.kubernetes.cri.sandbox-id"] != "forged" || len(request.Identity.Annotations) != 4 {
		t.Errorf("the request changed to %v", request.Identity.Annotations)
	}
}

// TestFailedCreateReachesTheGuest checks the undo of a failed creation that the guest may have completed. It must
// be undone in the guest and on the host, and the name must be free.
func TestFailedCreateReachesTheGuest(t *testing.T) {
	w := enginetest.New()
	roots := enginetest.Roots(t)
	o := w.In(enginetest.Options(t, roots))
	enginetest.LoadImage(t, o.Images)
	e := enginetest.Open(t, o)
	pod, err := e.StartPod(t.Context(), podRequest("p"))
	if err != nil {
		t.Fatal(err)
	}
	img, err := e.Images().Resolve(enginetest.Busybox)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := oci.New("", "true")
	if err != nil {
		t.Fatal(err)
	}
	request := engine.ContainerRequest{Key: "c/0", Name: "c", Spec: spec, Root: containerv1.Image{ID: img.ID}, Stdio: containerv1.Discard{}}
	w.Fail("Create", enginetest.ErrInjected)
	if _, err := e.CreateContainer(t.Context(), pod, request); !errors.Is(err, enginetest.ErrInjected) {
		t.Fatal(err)
	}
	calls := w.Calls()
	if created := slices.Index(calls, "Create"); created < 0 || !slices.Contains(calls[created:], "Delete") {
		t.Errorf("no call to the guest: %q", calls)
	}
	left, err := filepath.Glob(filepath.Join(e.StateDir(pod), "*", "config.json"))
	if err != nil || len(left) != 0 {
		t.Errorf("remaining bundle: %q, %v", left, err)
	}
	records, err := os.ReadDir(filepath.Join(roots.Sandboxes(), pod, "containers"))
	if err != nil || len(records) != 0 {
		t.Errorf("remaining record: %v, %v", records, err)
	}
	w.Fail("Create", nil)
	if _, err := e.CreateContainer(t.Context(), pod, request); err != nil {
		t.Errorf("under the same name: %v", err)
	}
}
