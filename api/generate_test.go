// Package api_test tests all generated APIs.
package api_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
)

// TestGenerated checks that the committed code is the output of generate.sh for each definition.
func TestGenerated(t *testing.T) {
	testgo.NeedTree()
	if _, err := exec.LookPath("protoc"); err != nil {
		t.Skip("protoc is not installed (protobuf-compiler, libprotobuf-dev)")
	}
	protos, err := filepath.Glob("*/v1/*.proto")
	if err != nil || len(protos) < 2 {
		t.Fatalf("definitions: %v, %v", protos, err)
	}
	for _, proto := range protos {
		t.Run(proto, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if out, err := exec.CommandContext(t.Context(), "sh", "generate.sh", proto, dir).CombinedOutput(); err != nil {
				t.Fatalf("generate.sh: %v\n%s", err, out)
			}
			made, err := filepath.Glob(filepath.Join(dir, "*.go"))
			if err != nil || len(made) != 2 {
				t.Fatalf("generated: %v, %v", made, err)
			}
			for _, path := range made {
				compare(t, filepath.Join(filepath.Dir(proto), filepath.Base(path)), path)
			}
		})
	}
}

func compare(t *testing.T, committed, made string) {
	t.Helper()
	got, err := os.ReadFile(committed)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(made)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(withoutVersions(got), withoutVersions(want)) {
		t.Errorf("%s is out of date: run go generate ./%s", committed, filepath.Dir(committed))
	}
}

// withoutVersions removes the comment with protoc's version, which depends on the distribution.
func withoutVersions(b []byte) []byte {
	var kept [][]byte
	for _, line := range bytes.Split(b, []byte("\n")) {
		if !bytes.HasPrefix(line, []byte("// \tprotoc")) {
			kept = append(kept, line)
		}
	}
	return bytes.Join(kept, []byte("\n"))
}
