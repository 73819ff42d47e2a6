package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/oci"
)

// container is the id of the world's container of bulkhead-oci, and the name of its cgroup. It is in the surrogate's
// arguments.
func (w *world) container() string { return "victim-" + filepath.Base(w.dir) }

// oci starts a command of bulkhead-oci. The surrogate inherits its standard streams, so these are no pipes.
func (w *world) oci(t *testing.T, args ...string) *command {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), testdeadline.For(commandLimit))
	log := filepath.Join(t.TempDir(), "log")
	c := w.program(ctx, "bulkhead-oci", append([]string{"--root", filepath.Join(w.dir, "oci"), "--log", log}, args...)...)
	c.Stderr = nil
	w.launch(t, c, func() {
		cancel()
		text, _ := os.ReadFile(log)
		c.err.Write(text)
	})
	return c
}

// bundle writes a bundle with a program that sleeps, and returns its directory.
func (w *world) bundle(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"bin", "dev", "etc", "proc", "sys"} {
		if err := os.MkdirAll(filepath.Join(dir, "rootfs", d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "rootfs/bin/sleep"), busybox, 0o755); err != nil {
		t.Fatal(err)
	}
	spec, err := oci.New("", "/bin/sleep", "1000")
	if err != nil {
		t.Fatal(err)
	}
	spec.Root.Path, spec.Linux.CgroupsPath = "rootfs", "/"+w.container()
	spec.Linux.Namespaces = append(spec.Linux.Namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace})
	kept := spec.Mounts[:0]
	for _, m := range spec.Mounts {
		if m.Type != "bind" { // the pod's shared memory
			kept = append(kept, m)
		}
	}
	spec.Mounts = kept
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// firstContainer runs a container, so that later ones find the template of their kind of VM.
func (w *world) firstContainer(t *testing.T) {
	t.Helper()
	for _, args := range [][]string{{"create", "--bundle", w.bundle(t)}, {"delete"}} {
		if c := w.oci(t, append(args, w.container())...); c.wait(t) != 0 {
			t.Fatalf("bulkhead-oci: %v", c)
		}
	}
	if err := os.Remove(filepath.Join(w.dir, "oci")); err != nil {
		t.Fatal(err)
	}
}

// container kills during a command about a container of bulkhead-oci, after so many earlier commands of its life. Then
// delete --force must succeed, remove all of the container, and free its id.
func (k *killing) container(t *testing.T, earlier int, args ...string) {
	must := func(args ...string) {
		t.Helper()
		if c := k.oci(t, append(args, k.world.container())...); c.wait(t) != 0 {
			t.Fatalf("bulkhead-oci: %v", c)
		}
	}
	defer func() { // also after a failure
		k.faults.Disarm()
		k.oci(t, "delete", "--force", k.world.container()).wait(t)
		_ = os.Remove(filepath.Join(k.dir, "oci"))
	}()
	for _, before := range [][]string{{"create", "--bundle", k.bundle(t)}, {"start"}}[:earlier] {
		must(before...)
	}
	c := k.strike(t, func() *command { return k.oci(t, append(args, k.world.container())...) })
	if code := c.wait(t); code > 0 && strings.Count(strings.TrimSpace(c.err.String()), "\n") > 1 {
		t.Errorf("not a short error: %v", c)
	}
	k.faults.Disarm()
	must("delete", "--force")
	if left, err := os.ReadDir(filepath.Join(k.dir, "oci")); err != nil || len(left) > 0 {
		t.Errorf("records left: %v, %v", left, err)
	}
}
