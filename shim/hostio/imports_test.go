package hostio_test

import (
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/testgo"
)

// TestImports keeps the package small: a process of the host has it in its memory for each container.
func TestImports(t *testing.T) {
	out, err := testgo.Command(t.Context(), "list", "-deps", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	for path := range strings.FieldsSeq(string(out)) {
		own, ours := strings.CutPrefix(path, "github.com/bulkhead-project/bulkhead/")
		switch {
		case path == "net", path == "encoding/json", path == "log/slog":
			t.Errorf("it imports %s, which costs memory", path)
		case ours && own != "shim/hostio" && own != "internal/memfd" && own != "internal/progress":
			t.Errorf("it imports %s", path)
		case !ours && strings.Contains(path, ".") && !strings.HasPrefix(path, "golang.org/x/sys/") && !strings.HasPrefix(path, "vendor/"):
			t.Errorf("it imports the module of %s", path)
		}
	}
}
