package files

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// TestFilesOfAVolume: only the last call of a set publishes it, regardless of failed sets.
func TestFilesOfAVolume(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	v := &volume{root: root}
	entry := func(path, data string) []agentv1.FileEntry {
		return []agentv1.FileEntry{{Path: path, Mode: 0o600, Data: []byte(data)}}
	}
	for i, step := range []struct {
		call      agentv1.Files
		err       error
		published string
		a         string // content of the file a; empty: no file
	}{
		{agentv1.Files{}, nil, "", ""},
		{agentv1.Files{Begin: true}, errdefs.ErrInvalidArgument, "", ""},
		{agentv1.Files{Digest: "1", Entries: entry("a", "x")}, agentv1.ErrBusy, "", ""},
		{agentv1.Files{Digest: "1", Commit: true}, agentv1.ErrBusy, "", ""},
		{agentv1.Files{Digest: "1", Begin: true, Entries: entry("a", "on")}, nil, "", ""},
		{agentv1.Files{Digest: "2", Entries: entry("a", "x")}, agentv1.ErrBusy, "", ""},
		{agentv1.Files{Digest: "1", Entries: entry("a", "e")}, nil, "", ""},
		{agentv1.Files{}, nil, "", ""},
		{agentv1.Files{Digest: "1", Commit: true}, nil, "1", "one"},
		{agentv1.Files{Digest: "2", Begin: true, Entries: entry("a", "half")}, nil, "1", "one"},
		// The host's next process starts again.
		{agentv1.Files{Digest: "2", Begin: true, Entries: entry("a", "two")}, nil, "1", "one"},
		{agentv1.Files{Digest: "2", Entries: entry("../a", "x")}, errdefs.ErrInvalidArgument, "1", "one"},
		{agentv1.Files{Digest: "2", Commit: true}, agentv1.ErrBusy, "1", "one"},
		{agentv1.Files{Digest: "2", Begin: true, Commit: true, Entries: entry("a", "two")}, nil, "2", "two"},
		{agentv1.Files{Digest: "2", Begin: true, Commit: true, Entries: entry("a", "not this")}, nil, "2", "two"},
		{agentv1.Files{Digest: "3", Begin: true, Commit: true}, nil, "3", ""},
	} {
		if err := v.apply(step.call); !errors.Is(err, step.err) {
			t.Fatalf("call %d: %v, want %v", i, err, step.err)
		}
		if v.published != step.published {
			t.Errorf("call %d: published %q, want %q", i, v.published, step.published)
		}
		text, err := os.ReadFile(filepath.Join(dir, "a"))
		if string(text) != step.a || err != nil && step.a != "" {
			t.Errorf("call %d: %q, %v, want %q", i, text, err, step.a)
		}
	}
	if sets, _ := filepath.Glob(filepath.Join(dir, "..2*")); len(sets) != 1 {
		t.Errorf("sets left: %v", sets)
	}
}
