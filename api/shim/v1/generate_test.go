package shimv1_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestGenerated: the committed code is what generate.sh makes.
func TestGenerated(t *testing.T) {
	if _, err := exec.LookPath("protoc"); err != nil {
		t.Skip("protoc is not installed (protobuf-compiler, libprotobuf-dev)")
	}
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "sh", "generate.sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("generate.sh: %v\n%s", err, out)
	}
	for _, name := range []string{"extension.pb.go", "extension_ttrpc.pb.go"} {
		want, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(withoutVersions(got), withoutVersions(want)) {
			t.Errorf("%s is out of date: run go generate ./api/shim/v1", name)
		}
	}
}

// withoutVersions drops the comment that names protoc's version, which is the
// distribution's.
func withoutVersions(b []byte) []byte {
	var kept [][]byte
	for _, line := range bytes.Split(b, []byte("\n")) {
		if !bytes.HasPrefix(line, []byte("// \tprotoc")) {
			kept = append(kept, line)
		}
	}
	return bytes.Join(kept, []byte("\n"))
}
