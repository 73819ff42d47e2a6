package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	enginev1 "github.com/bulkhead-project/bulkhead/api/engine/v1"
	"github.com/bulkhead-project/bulkhead/door/run/client"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testfaults"
	"github.com/bulkhead-project/bulkhead/internal/test/testremote"
)

// TestDoor: a door in another process starts a missing engine. Its pod keeps the engine alive, outlives it, and the
// next engine finds it.
func TestDoor(t *testing.T) {
	w := newWorld(t)
	w.shutdown(t)
	for name, value := range map[string]string{
		"BULKHEAD_LIBEXEC": w.bin, "BULKHEAD_GUEST": testfaults.Guest(), "BULKHEAD_FAULTS": w.faults.Path,
		"BULKHEAD_WARM": "off", "BULKHEAD_IDLE": "300ms", "HOME": w.dir,
	} {
		t.Setenv(name, value)
	}
	c := testremote.New(w.roots(), "oci", client.StartProcess)
	pod, err := c.Start(t.Context(), &enginev1.StartRequest{Key: "c1", Network: "none"})
	if err != nil {
		t.Fatal(err)
	}
	first := w.engine()
	if info, err := os.Lstat(client.EngineSocket(w.roots())); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("socket: %v, %v", info, err)
	}
	time.Sleep(time.Second) // several times as long as an idle engine stays
	if list := w.must(t, "", "ps", "-A", "-o", "json"); !strings.Contains(list, pod.GetId()) {
		t.Errorf("ps -A: %s", list)
	}
	if now := w.engine(); now != first {
		t.Errorf("the engine is process %d, and was %d", now, first)
	}
	if err := kill(first); err != nil {
		t.Fatal(err)
	}
	adopted, err := c.AdoptKey(t.Context(), "c1")
	if err != nil || adopted.GetId() != pod.GetId() || adopted.GetState() != enginev1.Pod_READY {
		t.Fatalf("adopt: %v, %v", adopted, err)
	}
	shim, err := adopted.Shim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	shim.Close()
	if err := c.Remove(t.Context(), pod.GetId()); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(testdeadline.For(20 * time.Second)); len(w.processes()) > 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still there: %v", w.processes())
		}
	}
}
