package volume

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/place"
)

// TestPrepareHostPath: a hostPath has its type, or is created. Nothing is created in Bulkhead's own directories.
func TestPrepareHostPath(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		path, kind string
		fails      string // part of the error
		made       string // what exists afterwards: dir, file or empty
	}{
		{path: "dir", kind: "Directory"},
		{path: "dir", kind: "", made: "dir"},
		{path: "none", kind: ""},
		{path: "dir", kind: "File", fails: "is not a file"},
		{path: "file", kind: "File"},
		{path: "file", kind: "Directory", fails: "is not a directory"},
		{path: "none", kind: "Directory", fails: "is not a directory"},
		{path: "none", kind: "File", fails: "is not a file"},
		{path: "fifo", kind: "File", fails: "is not a file"},
		{path: "fifo", kind: "Socket", fails: "is not a socket"},
		{path: "new/dir", kind: "DirectoryOrCreate", made: "dir"},
		{path: "new", kind: "FileOrCreate", made: "file"},
		{path: "new/file", kind: "FileOrCreate", fails: "is not a file"},
		{path: "own/new", kind: "DirectoryOrCreate", fails: "Bulkhead's own"},
		{path: "to-own/new/dir", kind: "DirectoryOrCreate", fails: "Bulkhead's own"},
		{path: "to-own/new", kind: "FileOrCreate", fails: "Bulkhead's own"},
		{path: "dir", kind: "Other", fails: "invalid volume type"},
	} {
		dir := t.TempDir()
		for _, err := range []error{
			os.Mkdir(filepath.Join(dir, "dir"), 0o755), os.Mkdir(filepath.Join(dir, "own"), 0o755),
			os.Symlink("own", filepath.Join(dir, "to-own")), os.WriteFile(filepath.Join(dir, "file"), nil, 0o600),
			unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		kind, path := corev1.HostPathType(tt.kind), filepath.Join(dir, tt.path)
		rules := place.Rules{Own: []string{filepath.Join(dir, "own")}}
		err := PrepareHostPath(t.Context(), rules, &corev1.HostPathVolumeSource{Path: path, Type: &kind})
		if (err != nil) != (tt.fails != "") || err != nil && !strings.Contains(err.Error(), tt.fails) {
			t.Errorf("%s as %q: %v", tt.path, tt.kind, err)
		}
		switch info, err := os.Stat(path); {
		case tt.made != "" && (err != nil || info.IsDir() != (tt.made == "dir")):
			t.Errorf("%s as %q is %v, %v", tt.path, tt.kind, info, err)
		case strings.Contains(tt.path, "n") && tt.made == "" && tt.path != "fifo" && !errors.Is(err, os.ErrNotExist):
			t.Errorf("%s as %q was made", tt.path, tt.kind)
		}
	}
}
