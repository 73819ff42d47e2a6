package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testimage"
)

// TestFullDisk: the data directory has too little space for an image, or for the VM of a pod.
func TestFullDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("boots virtual machines; make test runs it in its second pass")
	}
	if os.Geteuid() != 0 {
		t.Skip("mounts file systems, which only root may")
	}
	registry := testimage.Registry(t)
	big, _ := registry.Push(t, "big:1", large(t))
	for _, tc := range []struct {
		name, size string
		inputs     []badInput
	}{
		{"for an image", "80m", []badInput{
			{name: "pull", args: []string{"image", "pull", "--quiet", big}, code: 1, want: []string{"no space left"}},
			{name: "run", stdin: manifest(big, "['true']", ""), code: 125, want: []string{"no space left"}},
		}},
		{"for a VM", "120m", []badInput{
			{name: "run", stdin: manifest(busybox, "['true']", ""), code: 125, want: []string{"no space left"}},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			u := newUser(t, nil, noForks)
			data := filepath.Join(u.dir, "data")
			if err := os.Mkdir(data, 0o711); err != nil {
				t.Fatal(err)
			}
			mount := exec.Command("mount", "-t", "tmpfs", "-o", "size="+tc.size+",mode=711", "bulkhead-test", data)
			if out, err := mount.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			defer func() {
				u.nothingLeft() // while its files still exist
				if out, err := exec.Command("umount", data).CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
				_ = os.RemoveAll(u.dir + "/state")
			}()
			conf := filepath.Join(u.dir, "registries.conf")
			if err := os.WriteFile(conf, fmt.Appendf(nil, "[[registry]]\nlocation = %q\ninsecure = true\n", registry.Host), 0o644); err != nil {
				t.Fatal(err)
			}
			u.env = append(u.env, "CONTAINERS_REGISTRIES_CONF="+conf)
			u.loadBusybox()
			for _, in := range tc.inputs {
				t.Run(in.name, func(t *testing.T) { in.check(t, u) })
			}
			if out := u.must("", "image", "ls"); !strings.Contains(out, busybox) || strings.Contains(out, "big") {
				t.Errorf("image ls: %s", out)
			}
		})
	}
}

// TestBadGuest: guests fail to start, and --detail shows the last lines of the console.
func TestBadGuest(t *testing.T) {
	if testing.Short() {
		t.Skip("boots virtual machines; make test runs it in its second pass")
	}
	for _, tc := range []struct {
		name   string
		damage func(t *testing.T, bundle map[string]any, dir string)
		want   string
		detail string
	}{
		{"a kernel without its init", func(_ *testing.T, bundle map[string]any, _ string) {
			bundle["cmdline"] = bundle["cmdline"].(string) + " rdinit=/nosuch"
		}, "the guest's kernel died", "Kernel panic"},
		{"a kernel that is none", func(t *testing.T, _ map[string]any, dir string) {
			f, err := os.OpenFile(filepath.Join(dir, "vmlinux"), os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.Write(make([]byte, 1<<20)); err != nil {
				t.Fatal(err)
			}
		}, "QEMU ended", "kernel"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			u := newUser(t, nil, noForks)
			guest := filepath.Join(u.dir, "guest")
			if out, err := exec.Command("cp", "-r", os.Getenv("BULKHEAD_GUEST"), guest).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			b, err := os.ReadFile(guest + "/bundle.json")
			bundle := map[string]any{}
			if err != nil || json.Unmarshal(b, &bundle) != nil {
				t.Fatalf("bundle.json: %v", err)
			}
			tc.damage(t, bundle, guest)
			if b, err = json.Marshal(bundle); err != nil || os.WriteFile(guest+"/bundle.json", b, 0o644) != nil {
				t.Fatalf("bundle.json: %v", err)
			}
			u.env = append(u.env, "BULKHEAD_GUEST="+guest)
			u.loadBusybox()
			for _, template := range []string{"on", "off"} {
				in := badInput{
					stdin: manifest(busybox, "['true']", ""),
					args:  []string{"run", "--rm", "--quiet", "--template", template, "-"},
					code:  125,
					want:  []string{tc.want},
				}
				t.Run("template "+template, func(t *testing.T) {
					began := time.Now()
					in.check(t, u)
					_, stderr, _ := u.run(in.stdin, append([]string{"--detail"}, in.args...)...)
					if !strings.Contains(stderr, tc.detail) {
						t.Errorf("the detail does not contain %q: %s", tc.detail, stderr)
					}
					t.Logf("took %v", time.Since(began))
				})
			}
		})
	}
	u := newUser(t, nil, noForks, "BULKHEAD_GUEST=/no/such")
	badInput{args: []string{"ps"}, code: 1, want: []string{"guest bundle", "/no/such"}}.check(t, u)
	u = newUser(t, nil, noForks, "BULKHEAD_QEMU=/no/such/qemu")
	badInput{args: []string{"ps"}, code: 1, want: []string{"find QEMU", "install qemu-system-x86"}}.check(t, u)
}
