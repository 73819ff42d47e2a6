package usage

import (
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestSums: a container's usage is its layer and logs. A pod's usage is the sum of its containers and its emptyDirs on
// disk.
func TestSums(t *testing.T) {
	t.Parallel()
	of := func(name string, bytes uint64) *runtimeapi.ContainerStats {
		return &runtimeapi.ContainerStats{
			Attributes: &runtimeapi.ContainerAttributes{Metadata: &runtimeapi.ContainerMetadata{Name: name}},
			WritableLayer: &runtimeapi.FilesystemUsage{
				UsedBytes: &runtimeapi.UInt64Value{Value: bytes}, InodesUsed: &runtimeapi.UInt64Value{Value: 1},
			},
		}
	}
	bare := of("bare", 0)
	bare.WritableLayer = nil
	p := Pod{
		Stats: &runtimeapi.PodSandboxStats{Linux: &runtimeapi.LinuxPodSandboxStats{
			Containers: []*runtimeapi.ContainerStats{of("a", 1), of("b", 20), bare},
		}},
		Logs:    map[string]Files{"a": {300, 1}, "ended": {4000, 2}},
		Volumes: []Volume{{Ephemeral: true, Files: Files{50_000, 3}}, {Files: Files{600_000, 4}}},
	}
	for name, want := range map[string]Files{"a": {301, 2}, "b": {20, 1}, "ended": {4000, 2}, "bare": {}, "none": {}} {
		if got := p.Container(name); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	if got, want := p.Ephemeral(), (Files{54_321, 8}); got != want {
		t.Errorf("in all %+v, want %+v", got, want)
	}
	if got := (&Pod{}).Ephemeral(); got != (Files{}) {
		t.Errorf("Ephemeral of a pod without statistics: got %+v, want zero", got)
	}
}

// TestSystems: a file system that answers is reported. An unresponsive one delays only the first caller, and is
// reported again once it answers.
func TestSystems(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s Systems
		if v, ok := s.Of(t.TempDir()); !ok || v.Capacity == 0 || v.Available > v.Capacity || v.Bytes > v.Capacity || v.AllInodes < v.Inodes {
			t.Errorf("%+v, %t", v, ok)
		}
		if _, ok := s.Of(filepath.Join(t.TempDir(), "none")); ok {
			t.Error("a missing directory has usage")
		}
		var asked atomic.Int32
		gate := make(chan struct{})
		s.statfs = func(path string, st *unix.Statfs_t) error {
			asked.Add(1)
			<-gate
			st.Bsize, st.Blocks = 512, 2
			switch path {
			case "broken":
				return errors.New("broken")
			case "lies":
				st.Bfree, st.Ffree = 3, 1
			}
			return nil
		}
		began := time.Now()
		for range 5 {
			if v, ok := s.Of("hangs"); ok {
				t.Errorf("it has %+v", v)
			}
		}
		if took := time.Since(began); took != patience || asked.Load() != 1 {
			t.Errorf("it delayed the caller for %v and was queried %d times", took, asked.Load())
		}
		close(gate)
		synctest.Wait()
		if v, ok := s.Of("hangs"); !ok || v.Capacity != 1024 || v.Bytes != 1024 || len(s.asked) != 0 {
			t.Errorf("it answers again: %+v, %t", v, ok)
		}
		if _, ok := s.Of("broken"); ok {
			t.Error("an error counts as an answer")
		}
		if v, ok := s.Of("lies"); !ok || v.Bytes != 0 || v.Inodes != 0 {
			t.Errorf("more free than total space: %+v, %t", v, ok)
		}
	})
}
