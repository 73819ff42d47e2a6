package boundedlog

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := New(f, 100)
	for i := range 1000 {
		if _, err := fmt.Fprintln(w, "line", i); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil || len(data) > 100 || !strings.HasSuffix(string(data), fmt.Sprintf("line %d\n", i)) {
			t.Fatalf("after line %d: %q, %v", i, data, err)
		}
	}
}
