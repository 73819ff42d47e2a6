package nri

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestMissed: ends during a broken subscription are reported to plugins after the next subscription, and only once.
func TestMissed(t *testing.T) {
	w := newWorld(t)
	w.fake.pods["old"], w.fake.containers["old-c"], w.exited["old-c"] = true, "old", true
	w.start(t)
	p := &plugin{}
	w.join(t, "missed", p)
	ctx := t.Context()
	for _, name := range []string{"p", "q"} {
		if _, err := w.Plugins.RunPodSandbox(ctx, podConfig(name), ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"stays", "goes", "told"} {
		if _, err := w.Plugins.CreateContainer(ctx, "p", config(name), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.StopContainer(ctx, "p-told", 0); err != nil {
		t.Fatal(err)
	}
	before := []string{
		"sync 1 1", "run p 10.1.1.1+fd00::1", "run q 10.1.1.1+fd00::1", "create stays", "created stays", "create goes", "created goes",
		"create told", "created told", "end told 3",
	}
	p.has(t, before...)
	w.fake.mu.Lock()
	w.exited["p-told"], w.exited["p-stays"] = true, true
	delete(w.fake.containers, "p-goes")
	delete(w.fake.pods, "q")
	// This container is being created and is not listed yet.
	w.Plugins.mu.Lock()
	w.Plugins.containers["p-new"] = w.Plugins.containers["p-goes"]
	w.Plugins.mu.Unlock()
	w.fake.mu.Unlock()
	w.events <- nil
	p.hasAll(t, append(before, "end stays 4", "end goes 0", "delete goes", "stop q", "remove q")...)
	w.send("p", "p-stays", runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	w.send("p", "p-stays", runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	w.send("q", "q", runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	w.send("p", "p", runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	p.hasAll(t, append(before, "end stays 4", "end goes 0", "delete goes", "stop q", "remove q", "delete stays", "stop p")...)
}
