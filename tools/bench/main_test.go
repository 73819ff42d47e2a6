package main

import (
	"encoding/json"
	"log"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/alone"
	"github.com/bulkhead-project/bulkhead/internal/ociimage"
	"github.com/bulkhead-project/bulkhead/internal/test/testimage"
	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
	"github.com/bulkhead-project/bulkhead/tools/bench/procs"
	"github.com/bulkhead-project/bulkhead/tools/bench/rows"
)

// TestMain runs the tests in their own network and below a keeper, like main.
func TestMain(m *testing.M) {
	if err := alone.Enter(); err != nil {
		log.Fatal(err)
	}
	code, err := procs.Keep(m.Run)
	if err != nil {
		log.Fatal(err)
	}
	os.Exit(code)
}

// TestBench measures once with the real programs. It expects samples, and nothing left behind.
func TestBench(t *testing.T) {
	if testing.Short() {
		t.Skip("boots virtual machines; make test runs it in its second pass")
	}
	for _, groups := range []string{"clone,exec,accel", "cri"} {
		t.Run(groups, testturn.In(1, 2, func(t *testing.T) { measureOnce(t, groups) }))
	}
}

func measureOnce(t *testing.T, groups string) {
	t.Helper()
	dir := t.TempDir()
	o := options{
		runs: 1, pods: 2, window: time.Second, rows: groups, bin: os.Getenv("BULKHEAD_LIBEXEC"), quiet: true,
		image: filepath.Join(dir, "image.tar"), reader: os.DevNull, worker: os.DevNull, out: filepath.Join(dir, "bench.json"),
	}
	if o.bin == "" {
		o.bin = "../../bin"
	}
	if err := ociimage.WriteArchive(o.image, testimage.Busybox(t)); err != nil {
		t.Fatal(err)
	}
	if err := bench(o); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(o.out)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Rows []struct {
			Name    string
			Samples []float64
			Absent  string
		}
		Left []string
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Rows) < 4 || len(got.Left) != 0 {
		t.Errorf("%+v", got)
	}
	for _, r := range got.Rows {
		if len(r.Samples) == 0 && r.Absent == "" {
			t.Errorf("%s has no samples", r.Name)
		}
	}
}

func TestSelected(t *testing.T) {
	all, err := selected("")
	if err != nil || len(all) < 5 {
		t.Fatalf("%d groups: %v", len(all), err)
	}
	some, err := selected("exec, clone")
	if err != nil || len(some) != 2 || some[0].Name != "clone" || some[1].Name != "exec" {
		t.Errorf("%v: %v", some, err)
	}
	for _, wrong := range []string{"exec,nothing", "exec,cri", ","} {
		if _, err := selected(wrong); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
	if slices.ContainsFunc(all, func(g rows.Group) bool { return g.Alone }) {
		t.Error("a group that must be measured alone is among all groups")
	}
}
