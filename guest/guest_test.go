package guest_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/guest"
)

// createBundle creates a complete bundle in a temporary directory.
func createBundle(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	m := guest.Manifest{Format: guest.Format, Cmdline: "quiet", Files: map[string]guest.File{}}
	for name, content := range map[string]string{guest.KernelFile: "a kernel", guest.InitrdFile: "an initrd"} {
		path := filepath.Join(dir, name)
		write(t, path, content)
		file, err := guest.HashFile(path)
		if err != nil {
			t.Fatal(err)
		}
		m.Files[name] = file
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, guest.ManifestFile), string(text))
	return dir
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLoad(t *testing.T) {
	dir := createBundle(t)
	b, err := guest.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if b.Cmdline != "quiet" || b.KernelPath() != filepath.Join(dir, "vmlinux") || b.InitrdPath() != filepath.Join(dir, "initrd") ||
		len(b.Digest) != 64 {
		t.Errorf("Load = %+v", b)
	}
	if err := b.Verify(); err != nil {
		t.Errorf("Verify of a whole bundle: %v", err)
	}
}

func TestLoadRefuses(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spoil func(t *testing.T, dir string)
		want  []error
		text  string
	}{
		{
			name:  "none",
			spoil: func(t *testing.T, dir string) { remove(t, dir, guest.ManifestFile) },
			want:  []error{os.ErrNotExist},
			text:  guest.ManifestFile,
		},
		{
			name: "manifest cut in half",
			spoil: func(t *testing.T, dir string) {
				path := filepath.Join(dir, guest.ManifestFile)
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				write(t, path, string(text[:len(text)/2]))
			},
			want: []error{guest.ErrInvalid},
			text: guest.ManifestFile,
		},
		{
			name:  "empty manifest",
			spoil: func(t *testing.T, dir string) { write(t, filepath.Join(dir, guest.ManifestFile), "{}") },
			want:  []error{guest.ErrInvalid, guest.ErrFormat},
			text:  "make guest",
		},
		{
			name: "a later format",
			spoil: func(t *testing.T, dir string) {
				write(t, filepath.Join(dir, guest.ManifestFile), `{"format": 999}`)
			},
			want: []error{guest.ErrFormat},
			text: "999",
		},
		{
			name: "no file listed",
			spoil: func(t *testing.T, dir string) {
				write(t, filepath.Join(dir, guest.ManifestFile), `{"format": 1}`)
			},
			want: []error{guest.ErrInvalid},
			text: "vmlinux",
		},
		{
			name:  "no initrd",
			spoil: func(t *testing.T, dir string) { remove(t, dir, guest.InitrdFile) },
			want:  []error{guest.ErrInvalid, os.ErrNotExist},
			text:  "initrd",
		},
		{
			name:  "kernel cut short",
			spoil: func(t *testing.T, dir string) { write(t, filepath.Join(dir, guest.KernelFile), "a k") },
			want:  []error{guest.ErrInvalid},
			text:  "vmlinux",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := createBundle(t)
			tc.spoil(t, dir)
			_, err := guest.Load(dir)
			for _, want := range tc.want {
				if !errors.Is(err, want) {
					t.Errorf("Load = %v, want an error that is %v", err, want)
				}
			}
			if err != nil && (!strings.Contains(err.Error(), tc.text) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("Load = %q, want one line with %q", err, tc.text)
			}
		})
	}
}

// A file altered without a change of size passes Load but fails Verify.
func TestVerifyFindsAlteration(t *testing.T) {
	dir := createBundle(t)
	write(t, filepath.Join(dir, guest.InitrdFile), "AN INITRD")
	b, err := guest.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Verify(); !errors.Is(err, guest.ErrInvalid) || !strings.Contains(err.Error(), "initrd") {
		t.Errorf("Verify = %v, want ErrInvalid that names initrd", err)
	}
}

func remove(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}
