package sandbox

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// TestCopies: trees are copied from and to containers that run or have ended, but not while the VM is paused.
func TestCopies(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.started("c")
	read := func() {
		t.Helper()
		tree, err := h.box.Pack(h.ctx, "c", "/a")
		h.must(err)
		defer tree.Close()
		e, err := tree.Next()
		h.must(err)
		content, err := io.ReadAll(tree)
		if string(e.Name) != "a" || string(content) != "text" || err != nil {
			t.Errorf("%s: %q, %v", e.Name, content, err)
		}
		if _, err := tree.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("the tree's end: %v", err)
		}
	}
	read()
	tree, err := h.box.Unpack(h.ctx, "c", "/", false)
	h.must(err)
	err = errors.Join(tree.Add(agentv1.Entry{Kind: agentv1.KindFile, Name: []byte("b"), Size: 1 << 20}, zeros{}), tree.End())
	if err == nil || !strings.Contains(err.Error(), "no place for b") {
		t.Errorf("a refusal: %v", err)
	}
	h.must(tree.Close())
	if u, err := h.box.Stats(h.ctx); err != nil || u.Disk.ReadBytes != 3 {
		t.Errorf("usage %+v, %v", u, err)
	}
	h.must(h.box.Pause(h.ctx))
	if _, err := h.box.Pack(h.ctx, "c", "/a"); !errors.Is(err, errdefs.ErrFailedPrecondition) {
		t.Errorf("of a paused VM: %v", err)
	}
	h.must(h.box.Resume(h.ctx))
	if _, err := h.box.Pack(h.ctx, "none", "/a"); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("of a missing container: %v", err)
	}
	h.must(h.box.SignalProcess(h.ctx, Process{Container: "c"}, unix.SIGKILL, false))
	h.wait(Process{Container: "c"})
	read()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
