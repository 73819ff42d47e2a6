package output

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

func TestFormats(t *testing.T) {
	v := []api.Reaped{{Adopted: 1}}
	table := func(w io.Writer) error { _, err := io.WriteString(w, "table"); return err }
	for f, want := range map[Format]string{
		"":     "table",
		"json": "[\n  {\n    \"adopted\": 1,\n    \"removed\": 0\n  }\n]\n",
		"yaml": "- adopted: 1\n  removed: 0\n",
	} {
		var w bytes.Buffer
		if err := f.Print(&w, v, table); err != nil || w.String() != want {
			t.Errorf("%q: %q, %v", f, w.String(), err)
		}
	}
	for _, f := range []Format{"xml", "JSON"} {
		if err := errors.Join(f.Valid(), f.Print(io.Discard, v, table)); err == nil || !strings.Contains(err.Error(), "json, yaml or") {
			t.Errorf("%q: %v", f, err)
		}
	}
}
