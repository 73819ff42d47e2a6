package hygiene

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCgroupFiles: Go's runtime opens files of the cgroup to learn its limits, and keeps them. Programs that read what a
// guest or an image has written must not: without Landlock they could open these again, for writing.
func TestCgroupFiles(t *testing.T) {
	for _, program := range []string{"bulkhead-shim", "bulkhead-share", "bulkhead-convert"} {
		source, err := os.ReadFile(filepath.Join("..", "..", "cmd", program, "main.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, setting := range []string{"containermaxprocs=0", "updatemaxprocs=0"} {
			if !strings.Contains(string(source), "\n//go:debug "+setting+"\n") {
				t.Errorf("%s lacks //go:debug %s", program, setting)
			}
		}
	}
}
